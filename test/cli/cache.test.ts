// lantern models --cache and --clear-cache as a user types them.

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { open } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const home = mkdtempSync(join(tmpdir(), "lantern-cli-cache-"));
const folder = join(home, "state");
const downloads = nodeDownloadPlatform({ LANTERN_CACHE: home });

beforeAll(async () => {
  const file = await tinyFile();
  for (const kvType of ["f16", "f32"] as const) {
    const options = { cacheDiskBytes: 1e7, cacheFolder: folder, threads: 1, kvType };
    await using model = await open(file.path, options);
    const tokens = Array.from({ length: 100 }, (_, i) => 5 + (i % 40));
    await model.generate(tokens, { maxTokens: 1 }).result;
  }
  file.remove();
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

async function models(args: string[], prepare?: (terminal: FakeTerminal) => void) {
  const terminal = new FakeTerminal();
  prepare?.(terminal);
  const code = await main(["models", "--cache-folder", folder, ...args], terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr };
}

test("what is stored, by model, with budgets", async () => {
  const { code, out } = await models(["--cache"]);
  expect(code).toBe(0);
  expect(out).toMatch(/^MODEL +KV CACHE +BACKEND +SIZE +LAST USED +FOLDER\n/);
  expect(out).toMatch(/^tiny.gguf +f16 +cpu/m);
  expect(out).toMatch(/^tiny.gguf +f32 +cpu/m);
  expect(out).toContain(`Copies on disk are in ${folder}: `);
  expect(out).toContain("--cache-disk");
  const json = JSON.parse((await models(["--cache", "--json"])).out) as Record<string, unknown>;
  expect(json).toMatchObject({
    path: folder,
    models: [{ model: "tiny.gguf" }, { model: "tiny.gguf" }],
    defaultBudgets: { ramBytes: 2 ** 30, diskBytes: 2 ** 33 },
    servers: [],
  });
});

test("clearing asks, names what it does not know, and deletes", async () => {
  const noOne = await models(["--clear-cache"]);
  expect(noOne.code).toBe(2);
  expect(noOne.err).toContain("Use --yes");
  const unknown = await models(["--clear-cache", "other", "--yes"]);
  expect(unknown.code).toBe(2);
  expect(unknown.err).toContain('nothing is stored of "other". There are copies of: tiny.gguf');
  const refused = await models(["--clear-cache"], (terminal) => {
    terminal.inIsTerminal = true;
    terminal.script = ["n"];
  });
  expect(refused).toMatchObject({ code: 1, err: expect.stringContaining("Nothing was deleted") });
  expect(readdirSync(folder)).toHaveLength(2);
  const one = await models(["--clear-cache", readdirSync(folder)[0]!, "--yes"]);
  expect(one.out).toMatch(/deleted \(1 folder\)/);
  expect(readdirSync(folder)).toHaveLength(1);
  expect((await models(["--clear-cache", "tiny", "--yes"])).code).toBe(0);
  expect(readdirSync(folder)).toEqual([]);
  expect((await models(["--cache"])).out).toContain("Nothing is stored.");
});

test("--explain says what copies cost, and where the state of a prompt came from", async () => {
  const file = await tinyFile();
  const prompt = "the cat sat on the mat and looked at the dog ".repeat(3);
  const args = ["run", "-m", file.path, "-p", prompt, "-n", "2", "--temp", "0", "--explain"];
  const run = async (more: string[]): Promise<string> => {
    const terminal = new FakeTerminal();
    const all = [...args, "--no-limit", "--no-tune", "--cache-folder", `${folder}-run`, ...more];
    expect(await main(all, terminal, downloads), terminal.stderr).toBe(0);
    return terminal.stderr;
  };
  const none = await run([]);
  expect(none).toContain("copies of state: none (--cache-ram, --cache-disk)");
  expect(none).toMatch(/a token takes .* in the KV cache and in each copy/);
  await run(["--cache-disk", "10"]);
  const again = await run(["--cache-disk", "10"]);
  expect(again).toContain("copies of state: up to 10.5 MB on disk, of all models (--cache-disk)");
  expect(again).toMatch(/0 were in the KV cache, 0 came from memory and [1-9]\d+ from disk \(/);
  expect(again).toContain("computed again: nothing that was known");
  expect(again).toMatch(/copies: memory holds 0 B of 0 B, disk .* of 10\.5 MB/);
  file.remove();
});
