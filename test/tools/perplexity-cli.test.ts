// lantern perplexity as a program calls it: text and JSON, a base saved and compared with, and what it says when
// something is wrong.

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { tinyFile } from "../support/tiny-file.ts";

const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });
const text =
  "the cat sat at the sea and ate eels, the eels at the sea sat; a cat ate the tea ".repeat(4);
const folder = mkdtempSync(join(tmpdir(), "lantern-perplexity-cli-"));
let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => {
  file.remove();
  rmSync(folder, { recursive: true });
});

async function run(...args: string[]) {
  const terminal = new FakeTerminal();
  terminal.files.set("text.txt", text);
  terminal.files.set("short.txt", "the cat");
  const all = ["perplexity", "-m", file.path, "-t", "1", ...args];
  const code = await main(all, terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr };
}

test("a base is saved whole, and compared with", async () => {
  const base = join(folder, "a.base");
  const saved = await run("-f", "text.txt", "-c", "40", "--save-base", base);
  expect(saved).toMatchObject({
    code: 0,
    err: expect.stringMatching(/^(Warning: a perplexity of .*worse than a guess.*\n)?$/),
  });
  expect(saved.out).toMatch(/^perplexity {2}\d+\.\d{4} ± \d+\.\d{4}\n\n\d+ windows of 40 tokens, /);
  expect(readdirSync(folder)).toEqual(["a.base"]);

  const compared = await run("--kl-base", base);
  expect(compared.code).toBe(0);
  expect(compared.out).toMatch(/^of the base +\d/m);
  expect(compared.out).toMatch(/^KL divergence +0\.0000\d ± /m);
  expect(compared.out).toMatch(/^same most likely token +100\.00 ± 0\.00%$/m);

  const { out } = await run("--kl-base", base, "--json", "--chunks", "2");
  const json = JSON.parse(out) as { windows: number; base: { same_top: { value: number } } };
  expect(json).toMatchObject({ window: 40, windows: 2, scored_tokens: 38 });
  expect(json.base.same_top.value).toBe(1);
});

test("what fails leaves no file, and says why", async () => {
  const base = join(folder, "b.base");
  const short = await run("-f", "short.txt", "-c", "40", "--save-base", base);
  expect(short.code).toBe(2);
  expect(short.err).toMatch(/the text is too short/);
  expect(existsSync(base) || existsSync(`${base}.part`)).toBe(false);

  const nowhere = await run("-f", "text.txt", "-c", "40", "--save-base", join(folder, "no", "b"));
  expect(nowhere).toMatchObject({ code: 3, out: "" });
  expect(nowhere.err).toMatch(/no.b"/);
  expect(readdirSync(folder)).toEqual(["a.base"]);

  expect(await run()).toMatchObject({ code: 2, out: "" });
  expect((await run()).err).toMatch(/got no text, expected a file. Name one with -f/);
  expect((await run("-f", "text.txt", "--kl-base", join(folder, "none"))).code).toBe(3);
  expect((await run("-f", "text.txt", "-c", "2")).code).toBe(2);
});

test("nothing is replaced unasked, and never what is read", async () => {
  const base = join(folder, "a.base");
  const before = readFileSync(base);
  const args = ["-f", "text.txt", "-c", "40", "--chunks", "1", "--save-base"];
  const refused = await run(...args, base);
  expect(refused.code).not.toBe(0);
  expect(refused.err).toMatch(/exists/);
  expect((await run(...args, file.path, "--force")).code).not.toBe(0);
  expect((await run("--kl-base", base, "--save-base", base, "--force")).code).not.toBe(0);
  expect(readFileSync(base).equals(before)).toBe(true);
  expect((await run(...args, base, "--force")).code).toBe(0);
  expect(readFileSync(base).length).toBeLessThan(before.length);
});

test("several models: a table by size, JSON, and a picture", async () => {
  const terminal = new FakeTerminal();
  terminal.files.set("text.txt", text);
  const flags = ["-f", "text.txt", "-c", "40", "--chunks", "2", "-t", "1"];
  const all = ["perplexity", file.path, file.path, ...flags];
  expect(await main([...all, "--plot", "p.svg"], terminal, downloads), terminal.stderr).toBe(0);
  expect(terminal.stdout).toMatch(/^model +type +size +bytes per weight +perplexity\b/);
  expect(terminal.stdout.match(/^tiny +F32 .* 4\.000 +\d+\.\d{4} +± \d/gm)).toHaveLength(2);
  expect(terminal.files.get("p.svg")).toMatch(/^<svg [\s\S]*perplexity by size[\s\S]*<\/svg>\n$/);
  expect(terminal.stderr).toContain("Chart written to p.svg");
  const json = new FakeTerminal();
  json.files.set("text.txt", text);
  expect(await main([...all, "--json"], json, downloads)).toBe(0);
  const { models } = JSON.parse(json.stdout) as { models: Record<string, unknown>[] };
  expect(models).toHaveLength(2);
  expect(models[0]).toMatchObject({ model: "tiny", type: "F32", bytes_per_weight: 4, windows: 2 });
  const base = await run("-f", "text.txt", "--save-base", "x.base", file.path);
  expect(base).toMatchObject({ code: 2, out: "" });
  expect(base.err).toContain("--save-base: got 2 models, expected one");
});
