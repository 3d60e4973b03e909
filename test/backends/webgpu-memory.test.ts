// A GPU that has too little memory, refused by its driver: what is advised works, what was loaded computes, and where memory runs out in
// the middle of an answer it goes on.

import { afterAll, afterEach, describe, expect, test } from "vitest";
import { deviceLayers } from "../../src/engine/device-layers.ts";
import { MemoryError, type OpenOptions, open } from "../../src/index.ts";
import { fillInLibrary, fillWhileLoading } from "../support/losing-device.ts";
import { memoryLimit } from "../support/memory-limit.ts";
import { hasShared, sharedPath } from "../support/shared.ts";
import { tinyFile } from "../support/tiny-file.ts";

const limit = memoryLimit();
const { gpuLacks } = await import("../support/gpu.ts"); // after the environment
const lacks = typeof limit === "string" ? limit : gpuLacks;

afterEach(() => void (typeof limit === "object" && limit.set(0)));
afterAll(() => void (typeof limit === "object" && limit.remove()));

function describeLimited(title: string, body: (limited: Exclude<typeof limit, string>) => void) {
  if (lacks === undefined && typeof limit === "object") describe(title, () => body(limit));
  else test.skip(`${title} [skipped: ${lacks}]`, () => {});
}

describeLimited("memory that a driver refuses", (limited) => {
  test("in the middle of an answer", async () => {
    const file = await tinyFile();
    try {
      await fillInLibrary(file.path, "webgpu", limited.file);
    } finally {
      file.remove();
    }
  });

  test("after a model was given all that it asked for, while it is loaded", async () => {
    const file = await tinyFile();
    try {
      await fillWhileLoading(file.path, limited.file);
    } finally {
      file.remove();
    }
  });

  const stories = "models/stories15M/stories15M-Q8_0.gguf";
  const only = hasShared(stories) ? test : test.skip;
  const why = hasShared(stories) ? "" : " [skipped: stories15M is not among the shared models]";

  const sampling = { temperature: 0, maxTokens: 6 } as const;
  const prompt = "Once upon a time";

  async function textWith(gpuLayers: NonNullable<OpenOptions["gpuLayers"]>) {
    await using opened = await open(sharedPath(stories), {
      gpuLayers,
      tuned: false,
      contextSize: 64,
    });
    const { text } = await opened.generate(prompt, sampling).result;
    const { layers } = deviceLayers(opened.info.backend.placement);
    return { text, layers, warnings: opened.info.warnings ?? [] };
  }

  only(
    `while it is loaded: the number that is advised computes, one more is refused${why}`,
    async () => {
      const { text } = await textWith(0);
      limited.set(34);
      const error = await textWith("all").catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(MemoryError);
      const { message } = error as Error;
      expect(message).toMatch(/which needs \d+\.\d MiB \(weights .* MiB, KV cache .* KiB, working/);
      const advised = Number(/use `gpuLayers: (\d)` or `gpuLayers: "auto"`$/.exec(message)![1]);
      expect(advised).toBeGreaterThan(0);
      expect(await textWith(advised)).toMatchObject({ text, layers: advised });
      await expect(textWith(advised + 1)).rejects.toThrow(`use \`gpuLayers: ${advised}\` or`);
      expect(await textWith("auto")).toMatchObject({ text, layers: advised, warnings: [] });
    },
  );

  only(`for the output alone: auto says that nothing is there, and why${why}`, async () => {
    limited.set(20);
    const { layers, warnings } = await textWith("auto");
    expect(layers).toBe(0);
    expect(warnings).toEqual([
      expect.stringMatching(
        /^gpuLayers: auto: not even the output fits the GPU's memory, so the processor computes all layers \(the GPU ".*" has too little memory/,
      ),
    ]);
    await expect(textWith(1)).rejects.toThrow("Not even the output would fit: use `gpuLayers: 0`");
  });
});
