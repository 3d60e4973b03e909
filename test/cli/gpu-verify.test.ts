// lantern verify on a GPU: all of a model, and some layers of it. What verify finds is in verify.test.ts.
// Held against: the reference.

import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { describeGpu } from "../support/gpu.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

describeGpu("lantern verify on a GPU", () => {
  let file: { path: string; remove(): void };
  beforeAll(async () => {
    file = await tinyFile({ weightType: "q4_0" });
  });
  afterAll(() => file.remove());

  async function verify(...flags: string[]): Promise<string> {
    const terminal = new FakeTerminal();
    await main(["verify", "-m", file.path, "-t", "1", "-p", "the cat", ...flags], terminal);
    return terminal.stdout;
  }

  test("all of it, and some layers of it", async () => {
    expect(await verify("--backends", "webgpu")).toMatch(/^webgpu: passed$/m);
    expect(await verify("--backends", "webgpu", "-ngl", "2")).toMatch(/^cpu\+webgpu: passed$/m);
  });
});
