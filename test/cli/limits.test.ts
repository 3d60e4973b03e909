// lantern limits as a program calls it: flags, tables, JSON, files written, and what it says when something is wrong.

import { describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import type { LimitsReport } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });

interface Ran {
  code: number;
  out: string;
  err: string;
  files: Map<string, string>;
}

async function run(args: string, files: Record<string, string> = {}): Promise<Ran> {
  const terminal = new FakeTerminal();
  for (const [path, text] of Object.entries(files)) terminal.files.set(path, text);
  const code = await main(["limits", ...args.split(" ").filter(Boolean)], terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr, files: terminal.files };
}

test("tables for a built-in configuration and a device, on its matrix units", async () => {
  const { code, out, err } = await run("qwen1.5-7b --device rtx4090");
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out).toMatch(/^fit in 24\.00 GiB +22072 tokens$/m);
  expect(out).toMatch(/^turning points +361 \(then arithmetic\)$/m);
  expect(out).toMatch(/^B +14\.09 ms/m);
  expect(out).toContain("No program that generates one token at a time is faster");
  expect(out).not.toMatch(/speculative|measured|undefined|NaN/);
});

test("--article: the published tables", async () => {
  const { code, out, err } = await run("qwen1.5-7b --device rtx4090-article --article");
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out).toMatch(/^active +7098728448 +7\.10 B +6\.61 Gi/m);
  expect(out).toMatch(/^fit in 24\.00 GiB +22072 tokens$/m);
  expect(out).toMatch(/^turning points +113 \(then arithmetic\), 481 \(then bandwidth\)$/m);
  expect(out).toMatch(/^W +2064 more tokens/m);
  expect(out).toMatch(/^B +13\.12 ms/m);
  expect(out).toMatch(/^weights 4 bits .* 42382 +23, 571 +2064 +3\.28/m);
  expect(out).toContain("Real programs can be faster");
  expect(out).not.toMatch(/speculative|measured|undefined|NaN/);
});

test("widths, memory, context and speculation", async () => {
  const { out } = await run(
    "llama-3-70b --device h100-sxm --weights 4 --kv 8 -c 8000 --memory 40 --acceptance 0.8 --draft llama-3-8b --draft-tokens 4",
  );
  expect(out).toMatch(/^weights +4 bits$/m);
  expect(out).toMatch(/^KV cache +8 bits$/m);
  expect(out).toMatch(/^fit in 40\.00 GiB/m);
  expect(out).toMatch(/^ +8000 +\d/m);
  expect(out).toMatch(/^drafted at a time +4 tokens, each accepted with probability 0\.8$/m);
  expect(out).toMatch(/^accepted per round +3\.36 tokens$/m);
  expect(out).toMatch(/^gain +1: \d\.\d\dx, 2: /m);
});

test("a configuration of one's own: a config.json, or its sizes", async () => {
  const config = JSON.stringify({
    ...{ model_type: "qwen2", hidden_size: 4096, intermediate_size: 11008, vocab_size: 151936 },
    ...{ num_attention_heads: 32, num_key_value_heads: 32, num_hidden_layers: 32 },
    rms_norm_eps: 1e-6,
  });
  const where = "--device rtx4090-article --article";
  const table = (text: string): string => text.slice(text.indexOf("\nparameters"));
  const { out: named } = await run(`qwen1.5-7b ${where}`);
  const { out: own } = await run(`--config config.json ${where}`, { "config.json": config });
  expect(own).toMatch(/^model +config\.json \(config\.json\)$/m);
  expect(table(own)).toBe(table(named));
  const sizes = "--layers 32 --hidden 4096 --heads 32 --ffn 11008 --vocab 151936 --qkv-bias";
  expect(table((await run(`${sizes} ${where}`)).out)).toBe(table(named));
});

test("users, an agreement, a batch and its price", async () => {
  const { code, out } = await run(
    "qwen1.5-7b --device rtx4090 --users 32 --sla 2s,20 -p 500 -n 64 --batch 1000 --price 0.5",
  );
  expect(code).toBe(0);
  expect(out).toMatch(/^users at once \(first token within 2 s, 20 tokens\/s each\)$/m);
  expect(out).toMatch(/^ +32 +\d+ .* served$/m);
  expect(out).toMatch(/^requests +prompts of 500 tokens, answers of 64$/m);
  expect(out).toMatch(/^at most +\d+ users; one more: the memory would be too small$/m);
  expect(out).toMatch(/^32 users +can be served$/m);
  expect(out).toMatch(/^requests +1000, \d+ at a time .limited by/m);
  expect(out).toMatch(/^cost +at least 0\.\d+; 0\.\d+ for a million generated tokens$/m);
  expect(out).toContain('"lantern bench serve -m MODEL" measures a model on its machine.');
  const { out: strict } = await run("qwen1.5-7b --device rtx4090 --users 32 --sla 50ms,100");
  expect(strict).toMatch(/^32 users +no: the last first token would come too late/m);
  const { out: json } = await run("qwen1.5-7b --device rtx4090 --sla 0.5,10 --json");
  const { serving } = JSON.parse(json) as LimitsReport;
  expect(serving!.sla).toEqual({ firstTokenMs: 500, tokensPerSecond: 10 });
  expect(serving!.rows.map(({ users }) => users)).toContain(serving!.most.users);
});

test("a weight that fits nowhere says so", async () => {
  expect((await run("qwen1.5-72b --device rtx4090")).out).toMatch(/the weights do not fit/);
});

test("--json is the report, and --plot and --measured work beside it", async () => {
  const bench = JSON.stringify({
    results: [{ level: 3, threads: 2, test: "pp128", tokens_per_second: { median: 3000 } }],
  });
  const { code, out, err, files } = await run(
    "qwen1.5-7b --device rtx4090 --json --plot p.svg --measured b.json",
    { "b.json": bench },
  );
  expect(code).toBe(0);
  const report = JSON.parse(out) as { decode: { firstMs: number }; measured: unknown[] };
  expect(report.decode.firstMs).toBeCloseTo(14.09, 2);
  expect(report.measured).toHaveLength(1);
  expect(files.get("p.svg")).toMatch(/^<svg [\s\S]*<\/svg>\n$/);
  expect(err).toBe("Chart written to p.svg\n");
});

test("--list: models and devices, as a table and as JSON", async () => {
  const { out } = await run("--list");
  expect(out).toMatch(/^qwen3-32b +Qwen3 32B +64 +5120 +25600 +64\/8 +151936$/m);
  expect(out).toMatch(/^h200 +NVIDIA H200 +141\.00 GiB +4800 GB\/s/m);
  const lists = JSON.parse((await run("--list --json")).out) as { devices: { id: string }[] };
  expect(lists.devices.map(({ id }) => id)).toContain("rtx4090");
});

test("the help has examples that name it", async () => {
  const { code, out } = await run("--help");
  expect(code).toBe(0);
  expect(out).toContain("Examples:\n  lantern limits qwen1.5-7b --device rtx4090");
});

describe("usage", () => {
  test.each([
    ["", "limits: got no model"],
    ["qwen1.5-7x --device rtx4090", "Did you mean qwen1.5-7b"],
    ["qwen1.5-7b --device rtx490", "Did you mean rtx4090"],
    ["qwen1.5-7b --device rtx4090 --weights many", 'weights: got "many", expected bits'],
    ["qwen1.5-7b --device rtx4090 -t 2", "a named device counts as a whole"],
    ["qwen1.5-7b --device rtx4090 -c 0", "Expected a whole number from 1"],
    ["qwen1.5-7b --device rtx4090 --memory none", "Expected a number from 0.001"],
    ["qwen1.5-7b --device rtx4090 --rate f64", "Allowed choices are f32, f16, int8"],
    ["qwen1.5-7b --device rtx4090 --acceptance 2", "Expected a number from 0 to 1"],
    ["qwen1.5-7b --device rtx4090 --draft 0.1", "need --acceptance"],
    ["qwen1.5-7b --device rtx4090 --plot p.png", "ends in .svg"],
    ["qwen1.5-7b --device rtx4090 --sla fast", "as in 2s,20 or 500ms,10"],
    ["qwen1.5-7b --device rtx4090 --sla 0s,20", "as in 2s,20 or 500ms,10"],
    ["qwen1.5-7b --device rtx4090 -p 512", "Add --users N or --batch N"],
    ["qwen1.5-7b --device rtx4090 --users 2 --price 1", "Add --batch"],
    ["qwen1.5-7b --device rtx4090 --users 0", "Expected a whole number from 1"],
    ["--layers 2 --hidden 64 --heads 4 --vocab 9", "--ffn: got nothing, expected a whole number"],
    ["--layers 2 --hidden 64 --heads 3 --ffn 9 --vocab 9", "expected a multiple of the 3 heads"],
    ["--layers 0", "Expected a whole number from 1"],
    ["--layers 2 --hidden 64 --heads 4 --kv-heads 3 --ffn 9 --vocab 9", "kvHeads: got 3"],
    ["qwen1.5-7b --layers 2 --tied", 'got the model "qwen1.5-7b" and --layers, --tied, expected'],
  ])("%s", async (args, message) => {
    const { code, out, err } = await run(args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain(message);
  });

  test("a file of measurements that is none", async () => {
    const { code, err } = await run("qwen1.5-7b --device rtx4090 --measured b.json", {
      "b.json": "hello",
    });
    expect(code).toBe(2);
    expect(err).toContain("measured: b.json is not JSON");
  });

  test("a config.json that is none", async () => {
    const device = "--device rtx4090";
    const { code, err } = await run(`--config c.json ${device}`, { "c.json": "hello" });
    expect(code).toBe(2);
    expect(err).toContain("config: c.json is not JSON");
    const other = await run(`--config c.json ${device}`, { "c.json": '{"model_type":"elmo"}' });
    expect(other.code).not.toBe(0);
    expect(other.err).toMatch(/model_type: got .*elmo.*, expected one of llama/);
  });
});
