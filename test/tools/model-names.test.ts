// Whatever takes a model takes the same names for it: paths, names of the catalog, names of the hub. A name whose file is not on
// this machine is an error that says how to get it, in every call.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { main } from "../../apps/cli/main.ts";
import * as lantern from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { tinyGguf } from "../support/tiny-file.ts";

const file = "hf:somebody/tiny-GGUF/tiny.gguf";
/** The one model of that repository which is here. */
const repository = "hf:somebody/tiny-GGUF";
let cache = "";
let path = "";
beforeAll(async () => {
  cache = mkdtempSync(join(tmpdir(), "lantern-names-"));
  const folder = join(cache, "hf/somebody/tiny-GGUF");
  mkdirSync(folder, { recursive: true });
  path = join(folder, "tiny.gguf");
  writeFileSync(path, await tinyGguf());
  vi.stubEnv("LANTERN_CACHE", cache);
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(cache, { recursive: true, force: true });
});

const output = () => join(cache, "out.gguf");
/** Every call of the API that takes a model. */
const calls: Record<string, (model: string) => Promise<unknown>> = {
  open: (model) => lantern.open(model),
  inspect: (model) => lantern.inspect(model),
  openTokenizer: (model) => lantern.openTokenizer(model),
  limits: (model) => lantern.limits(model, { device: "rtx4090" }),
  verify: (model) => lantern.verify(model),
  convert: (model) => lantern.convert(model, output()),
  quantize: (model) => lantern.quantize(model, output(), "Q4_0", { dryRun: true }),
  imatrix: (model) => lantern.imatrix(model, "text", output()),
  perplexity: (model) => lantern.perplexity(model, "text"),
  tune: (model) => lantern.tune({ model }),
  untunedTypes: (model) => lantern.untunedTypes(model),
};

test.each(Object.keys(calls))(
  "%s: a model that is not here is one that can be pulled",
  async (call) => {
    await expect(calls[call]!("tinyllama-chat")).rejects.toThrow(
      '"tinyllama-chat" is not on this machine yet. Download it with: lantern pull tinyllama-chat',
    );
  },
);

describe.each(["inspect", "openTokenizer", "limits", "quantize", "untunedTypes"])("%s", (call) => {
  test("a name is as good as the path", async () => {
    const plain = (value: unknown) => JSON.stringify(value, (key, v) => (key === "ms" ? 0 : v));
    const expected = plain(await calls[call]!(path));
    for (const name of [file, repository]) {
      expect(plain(await calls[call]!(name))).toBe(expected);
    }
  });
});

const commands: Record<string, string[]> = {
  inspect: ["inspect", "MODEL"],
  tokenize: ["tokenize", "-m", "MODEL", "the cat"],
  limits: ["limits", "MODEL", "--device", "rtx4090"],
  quantize: ["quantize", "MODEL", "out.gguf", "Q4_0", "--dry-run"],
  logits: ["logits", "-m", "MODEL", "-p", "the cat", "-t", "1"],
};

test.each(Object.keys(commands))("lantern %s: a name is as good as the path", async (command) => {
  const run = async (model: string) => {
    const terminal = new FakeTerminal();
    terminal.environment = { LANTERN_NO_LIMIT: "1", LANTERN_CACHE: cache };
    const args = commands[command]!.map((arg) => (arg === "MODEL" ? model : arg));
    const code = await main(args, terminal, nodeDownloadPlatform({ LANTERN_CACHE: cache }));
    expect(code, terminal.stderr).toBe(0);
    return terminal.stdout.replaceAll(/[\d.]+ m?s\b/g, "");
  };
  expect(await run(file)).toBe(await run(path));
});
