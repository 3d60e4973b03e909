// What a sequence keeps, asked of a file in every way that there is: limits(), inspect() and the plan of the Models page say the
// bytes that the engine allocates, for layers with windows and for recurrent state as well.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { explanation } from "../../apps/cli/load-model.ts";
import { loadPlan } from "../../apps/cli/model-fits.ts";
import { bytesText } from "../../apps/cli/text.ts";
import { limitsView } from "../../apps/web/src/state/limits-choice.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { inspect, type KvType, limits } from "../../src/index.ts";
import { convolutionsName, mixedName, windowsName } from "../support/mixed-arch.ts";
import { tinyEngine } from "../support/tiny-engine.ts";
import { tinyFile } from "../support/tiny-file.ts";

const device = "rtx4090";
const contexts = [33, 256, 512];

describe.each(["llama", mixedName, windowsName, convolutionsName])("%s", (architecture) => {
  let file: Awaited<ReturnType<typeof tinyFile>>;
  beforeAll(async () => {
    file = await tinyFile({ architecture });
  });
  afterAll(() => file.remove());

  async function allocated(contextSize: number, kvType: KvType): Promise<number> {
    const backend = new ReferenceBackend();
    const engine = await tinyEngine({ architecture, contextSize, kvType, backend });
    const { kvBytes } = backend.memory();
    expect(explanation(engine.info)).toContain(
      `KV cache (${kvType}) up to ${bytesText(kvBytes)}\n`,
    );
    engine.dispose();
    return kvBytes;
  }

  test.each(["f16", "q8_0"] as const)("a cache of %s", async (kvType) => {
    for (const contextSize of contexts) {
      const bytes = await allocated(contextSize, kvType);
      const { memory, ...report } = await limits(file.path, {
        device,
        kv: kvType,
        context: contextSize,
      });
      expect(memory.stateBytes).toBe(bytes);
      const inspected = await inspect(file.path, { contextSize, kvType });
      expect(inspected.memory).toMatchObject({ kvBytes: bytes, contextSize });
      expect(inspected.memory!.kvBytesPerToken).toBe(memory.kvBytesPerToken);
      expect(await loadPlan(file.path, contextSize, kvType)).toMatchObject({ kvBytes: bytes });
      // The Limits page, with the report that the server sent.
      const sent = JSON.parse(JSON.stringify({ ...report, memory })) as typeof report & {
        memory: typeof memory;
      };
      const loaded = [{ id: "m", threads: 1, contextSize, report: sent, isHere: true }];
      expect(limitsView({}, { loaded, machine: null }).report.memory.stateBytes).toBe(bytes);
    }
  });

  test("as many tokens fit as the memory is asked to hold", async () => {
    const bytes = await allocated(512, "f16");
    const { storedBytes } = (await limits(file.path, { device })).memory;
    const { memory } = await limits(file.path, { device, memoryBytes: storedBytes + bytes });
    const grows = architecture === "llama" || architecture === mixedName;
    expect(memory.tokensThatFitWithEmbedding).toBe(grows ? 512 : Infinity);
  });
});

test("what cannot be asked is refused before the file is opened", async () => {
  await expect(inspect("none.gguf", { kvType: "q4_k" as KvType })).rejects.toThrow(
    /kvType: got "q4_k", expected f32, f16, .* or iq4_nl, or \{ k, v \} with one of them each/,
  );
  await expect(inspect("none.gguf", { contextSize: 0 })).rejects.toThrow(
    /contextSize: got 0, expected an integer above 0/,
  );
});
