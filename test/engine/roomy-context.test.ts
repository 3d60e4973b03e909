// The size of a context that nobody asked for: the trained one, halved until memory has room for it.
// Held against: the bytes that the loaded model itself says its contexts take.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ModelInfo, type OpenOptions, open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";

const trained = 131_072;
let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile({ more: [["llama.context_length", { type: "u32", value: trained }]] });
});
afterAll(() => file.remove());

async function infoOf(options: OpenOptions): Promise<ModelInfo> {
  await using model = await open(file.path, { threads: 1, ...options });
  return model.info;
}

describe("the default context", () => {
  test("is the trained one where memory has room for all generations", async () => {
    expect((await infoOf({ parallel: 8 })).contextSize).toBe(trained);
    expect((await infoOf({ parallel: 8, contextSize: 512 })).contextSize).toBe(512);
  });

  test("is smaller where it has not: up to 32768, two contexts are enough", async () => {
    const { kvBytesPerToken } = await infoOf({ contextSize: 4096 });
    const all = kvBytesPerToken * trained * 8;
    for (const ramBytes of [all, all / 2]) {
      const { contextSize, stateBytes } = await infoOf({ parallel: 8, ramBytes });
      expect(stateBytes).toBeLessThan(ramBytes);
      expect([65_536, 32_768]).toContain(contextSize);
    }
    const some = kvBytesPerToken * 4 * 32_768;
    const shared = await infoOf({ parallel: 8, ramBytes: some });
    expect(shared.stateBytes / shared.kvBytesPerToken).toBeGreaterThanOrEqual(
      2 * shared.contextSize,
    );
    expect(shared.contextSize).toBeGreaterThanOrEqual(8192);
    expect(shared.contextSize).toBeLessThan(65_536);
  });
});
