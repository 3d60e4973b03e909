// lantern embed and lantern rerank: their formats, where texts come from, and what an encoder answers to other commands.
// Held against: the public API's numbers.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { cosineSimilarity, type Model, open } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { tinyEncoder } from "../support/tiny-encoder.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });
let file: Awaited<ReturnType<typeof tinyEncoder>>;
let model: Model;
beforeAll(async () => {
  file = await tinyEncoder({
    more: [
      ["general.name", { type: "string", value: "e5-tiny" }],
      ["bert.pooling_type", { type: "u32", value: 2 }],
    ],
  });
  model = await open(file.path, { threads: 1, level: 1 });
});
afterAll(async () => {
  await model.dispose();
  file.remove();
});

async function lantern(
  args: string[],
  prepare?: (terminal: FakeTerminal) => void,
): Promise<{ code: number; out: string; err: string }> {
  const terminal = new FakeTerminal();
  prepare?.(terminal);
  const [command, ...rest] = args as [string, ...string[]];
  const small = ["-t", "1", "--level", "1"];
  const code = await main([command, file.path, ...rest, ...small], terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr };
}

const texts = ["the cat", "sat at sea"];

describe("embed", () => {
  test("vectors to read, and how alike the texts are", async () => {
    const { code, out } = await lantern(["embed", ...texts]);
    expect(code).toBe(0);
    const [a, b] = (await model.embed(texts)).map(({ vector }) => vector);
    const alike = cosineSimilarity(a!, b!).toFixed(2);
    expect(out.split("\n")[0]).toBe(
      `embedding 0: ${[...a!.subarray(0, 16)].map((value) => value.toFixed(6).padStart(9)).join(" ")} ...`,
    );
    expect(out).toContain(`1.00  ${alike.padStart(4)}  0  the cat\n`);
    expect(out).toContain(`${alike.padStart(4)}  1.00  1  sat at sea\n`);
  });

  test("--json, array, json+ and raw have all of the numbers", async () => {
    const found = await model.embed(texts);
    const vectors = found.map(({ vector }) => [...vector]);
    const back = (rows: number[][]): number[][] => rows.map((row) => row.map(Math.fround));
    const tokens = found[0]!.tokens + found[1]!.tokens;
    interface List {
      data: { object: string; index: number; embedding: number[] }[];
      usage: object;
      cosineSimilarity?: number[][];
    }
    for (const flags of [["--json"], ["--embd-output-format", "json+"]]) {
      const list = JSON.parse((await lantern(["embed", ...texts, ...flags])).out) as List;
      expect(back(list.data.map(({ embedding }) => embedding))).toEqual(vectors);
      expect(list.usage).toEqual({ prompt_tokens: tokens, total_tokens: tokens });
      expect(list.cosineSimilarity?.[0]?.[0]).toBe(flags.includes("json+") ? 1 : undefined);
    }
    const array = await lantern(["embed", ...texts, "--embd-output-format", "array"]);
    expect(back(JSON.parse(array.out) as number[][])).toEqual(vectors);
    const raw = await lantern(["embed", ...texts, "--embd-output-format", "raw"]);
    const rows = raw.out.trimEnd().split("\n");
    expect(back(rows.map((row) => row.split(" ").map(Number)))).toEqual(vectors);
  });

  test("norms, dimensions, pooling: llama.cpp's flags", async () => {
    const whole = ["--embd-normalize", "0", "--dimensions", "3", "--embd-output-format", "array"];
    const { out } = await lantern(["embed", "a", ...whole]);
    const [expected] = await model.embed(["a"], { normalize: 0, dimensions: 3 });
    expect(JSON.parse(out)).toEqual([[...expected!.vector].map(Math.round)]);
    const none = await lantern(["embed", "a", "--pooling", "none", "--embd-normalize", "-1"]);
    expect(none.out.match(/^embedding \d+: .*\.\.\./gm)).toHaveLength(expected!.tokens);
    const rank = await lantern(["embed", "a", "--pooling", "rank"]);
    expect(rank.out).toMatch(/^rerank score 0: +-?\d+\.\d{3}\n$/);
  });

  test("texts of a file and of standard input, by a separator; what is put before them is said", async () => {
    const flags = ["--embd-output-format", "array"];
    const files = (terminal: FakeTerminal): void => {
      terminal.files.set("in.txt", "the cat\r\nsat at sea\n");
      terminal.input = "the cat<#>sat at sea";
    };
    const { out } = await lantern(["embed", ...texts, ...flags]);
    expect((await lantern(["embed", "-f", "in.txt", ...flags], files)).out).toBe(out);
    const piped = ["embed", "-", "--embd-separator", "<#>", ...flags];
    expect((await lantern(piped, files)).out).toBe(out);
    const asked = await lantern(["embed", "cat", "--as", "query", ...flags]);
    expect(asked.err).toBe('Before each text: "query: "\n');
    expect(asked.out).toBe((await lantern(["embed", "query: cat", ...flags])).out);
  });

  test.each([
    [[], /embed: got no text, expected at least one/],
    [["a", "--pooling", "max"], /Allowed choices are none, mean, cls, last, rank/],
    [["a", "--json", "--embd-output-format", "raw"], /got both --json and --embd-output-format/],
    [["a", "--embd-separator", ""], /--embd-separator: got nothing/],
    [["a", "--dimensions", "33"], /dimensions: got 33, expected a whole number from 1 to 32/],
  ])("refuses %j", async (args, message) => {
    const { code, out, err } = await lantern(["embed", ...args]);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toMatch(message);
  });
});

describe("rerank", () => {
  test("a table, the best first; --json as /v1/rerank answers", async () => {
    const { results, tokens } = await model.rerank("cat", texts);
    const { code, out } = await lantern(["rerank", "-q", "cat", ...texts]);
    expect(code).toBe(0);
    const rows = results.map(({ score, index, document }) => [score.toFixed(3), index, document]);
    const lines = out.trimEnd().split("\n").slice(1);
    expect(lines.map((line) => line.trim().split(/ {2,}/))).toEqual(
      rows.map((row) => row.map(String)),
    );
    const asked = ["rerank", "-q", "cat", ...texts, "--top-n", "1", "--json"];
    const best = results.slice(0, 1).map(({ index, score, document }) => ({
      index,
      relevance_score: score,
      document: { text: document },
    }));
    const usage = { prompt_tokens: tokens, total_tokens: tokens };
    const json = JSON.parse((await lantern(asked)).out);
    expect(json).toEqual({ model: "e5-tiny", object: "list", usage, results: best });
  });

  test("without a query or documents", async () => {
    expect((await lantern(["rerank", "a"])).err).toContain("rerank: got no query");
    expect((await lantern(["rerank", "-q", "a"])).err).toContain("rerank: got no document");
  });
});

describe("other commands", () => {
  const plain = async (args: string[]): Promise<{ code: number; out: string; err: string }> => {
    const terminal = new FakeTerminal();
    const code = await main(args, terminal, downloads);
    return { code, out: terminal.stdout, err: terminal.stderr };
  };

  test.each(["run", "chat"])("%s says what to do instead", async (command) => {
    const { code, err } = await plain([command, "-m", file.path, "-t", "1", "--level", "1"]);
    expect(code).toBe(2);
    expect(err).toContain(
      `(bert) makes embeddings and cannot generate text. It turns texts into vectors: lantern embed ${file.path} "a text"`,
    );
    expect(err).toContain("lantern rerank");
  });

  test("inspect shows the pooling", async () => {
    expect((await plain(["inspect", file.path])).out).toMatch(/^pooling +cls$/m);
  });
});
