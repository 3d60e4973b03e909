// lantern bench serve: a server in this process, and servers of others, made up here: what is asked, what is printed
// and stored, and what it says when a server does not answer as it should. No time is asserted.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { promptSource } from "../../apps/cli/bench/users.ts";
import { main } from "../../apps/cli/main.ts";
import { quantile } from "../../src/base/measure.ts";
import { type LimitsReport, limits } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { madeUpMachine, rememberMadeUpMachine } from "../support/measured-machine.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

interface Ran {
  code: number;
  out: string;
  err: string;
}

type Fetch = (url: string, init: RequestInit) => Promise<Response>;

async function benchServe(args: readonly string[], fetcher?: Fetch): Promise<Ran> {
  const terminal = new FakeTerminal();
  terminal.environment = { LANTERN_API_KEY: "secret" };
  const platform = nodeDownloadPlatform({});
  const downloads = fetcher ? { ...platform, fetch: fetcher as typeof fetch } : platform;
  const code = await main(["bench", "serve", ...args], terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr };
}

interface ServeJson {
  most_users: number;
  results: {
    users: number;
    meets_sla: boolean;
    tokens_per_second: number;
    tokens_per_second_with_prompts: number | null;
    counted: { prompt_tokens: number; answer_tokens: number };
    limit: { tokens_per_second: number; fraction: number } | null;
  }[];
}

describe("a server in this process", () => {
  let file: Awaited<ReturnType<typeof tinyFile>>;
  let remembered: Awaited<ReturnType<typeof rememberMadeUpMachine>>;
  let ran: Ran;
  const lengths = ["-p", "20", "-n", "4"];
  beforeAll(async () => {
    remembered = await rememberMadeUpMachine();
    file = await tinyFile();
    const args = ["-m", file.path, "-t", "1", "--users", "1,3", "-r", "1", ...lengths];
    ran = await benchServe([...args, "--sla", "600s,0.001", "--json"]);
  });
  afterAll(() => {
    file.remove();
    remembered.forget();
  });

  test("every user gets an answer, beside what this machine allows", async () => {
    expect(ran.code, ran.err).toBe(0);
    const { most_users, results } = JSON.parse(ran.out) as ServeJson;
    expect(results.map(({ users }) => users)).toEqual([1, 3]);
    expect(most_users).toBe(3);
    const machine = await madeUpMachine();
    const serving = { users: 3, promptTokens: 20, answerTokens: 4 };
    const report = await limits(file.path, { machine: async () => machine, threads: 1, serving });
    const limit = report.serving!.rows.find(({ users }) => users === 3)!.tokensPerSecond;
    expect(results[1]!.limit!.tokens_per_second).toBeCloseTo(limit, 3);
    expect(results[1]!.limit!.fraction * limit).toBeCloseTo(results[1]!.tokens_per_second, 3);
    for (const { counted } of results) {
      expect(counted.answer_tokens).toBe(4);
      expect(Math.abs(counted.prompt_tokens - 20)).toBeLessThan(8); // words have several tokens here
    }
  });

  test("lantern limits --users shows what was stored, with its own lengths", async () => {
    const terminal = new FakeTerminal();
    const args = ["limits", file.path, "-t", "1", "--users", "2", "--sla", "600s,0.001"];
    expect(await main([...args, "--json"], terminal, nodeDownloadPlatform({}))).toBe(0);
    const { measured } = (JSON.parse(terminal.stdout) as LimitsReport).serving!;
    const lengthsOf = { promptTokens: 20, answerTokens: 4, meetsSla: true };
    expect(measured).toMatchObject([
      { users: 1, ...lengthsOf },
      { users: 3, ...lengthsOf },
    ]);
    const text = new FakeTerminal();
    expect(await main(args, text, nodeDownloadPlatform({}))).toBe(0);
    expect(text.stdout).toMatch(/^ +3 +20 +4 +[\d.]+ \/ [\d.]+ .*served +\d{4}-\d\d-\d\d$/m);
    // Another device, and a cache of another type, are other cases.
    for (const other of [{ device: "rtx4090" }, { kv: "q8_0", machine: madeUpMachine }]) {
      const report = await limits(file.path, { ...other, serving: {} });
      expect(report.serving!.measured).toEqual([]);
    }
  });

  test("a damaged file of results is none", async () => {
    const place = join(remembered.folder, "serving.json");
    const stored = JSON.parse(readFileSync(place, "utf8")) as { loads: object[] };
    const bad = [null, 7, {}, { ...stored.loads[0], users: -1 }, { ...stored.loads[0], at: 5 }];
    const measuredWith = async (text: string): Promise<number> => {
      writeFileSync(place, text);
      const options = { machine: madeUpMachine, serving: {} };
      return (await limits(file.path, options)).serving!.measured.length;
    };
    expect(
      await measuredWith(JSON.stringify({ ...stored, loads: [...bad, stored.loads[1]] })),
    ).toBe(1);
    expect(await measuredWith(JSON.stringify({ ...stored, cpu: "another" }))).toBe(0);
    expect(await measuredWith("{")).toBe(0);
  });

  test("more than the context is refused before anything is loaded", async () => {
    const { code, err } = await benchServe(["-m", file.path, "-p", "100000"]);
    expect(code).toBe(2);
    expect(err).toMatch(
      /prompts of 100000 tokens and answers of 64, expected at most \d+ together/,
    );
  });
});

describe("a server of others", () => {
  const asked: { url: string; body: Record<string, unknown>; key: string | null }[] = [];
  /** Two tokens in each event, as some servers send them. */
  const events = (usage?: object): string =>
    [
      { choices: [{ text: "" }] },
      { choices: [{ text: "a b" }] },
      { choices: [{ text: " c d" }], ...(usage && { usage }) },
    ]
      .map((event) => `data: ${JSON.stringify(event)}\n\n`)
      .join("");
  const server =
    (stream: () => string | Response): Fetch =>
    async (url, { body, headers }) => {
      const fields = JSON.parse(String(body ?? "{}")) as Record<string, unknown>;
      asked.push({ url, body: fields, key: new Headers(headers).get("authorization") });
      if (url.endsWith("/v1/models")) return Response.json({ data: [{ id: "other-7b" }] });
      const answer = stream();
      return typeof answer === "string" ? new Response(`${answer}data: [DONE]\n\n`) : answer;
    };
  const args = ["--url", "http://there:1234/v1/", "--users", "2", "-n", "4", "-r", "1"];

  test("is asked for its model, counts its own tokens, and needs no file", async () => {
    asked.length = 0;
    const usage = { prompt_tokens: 60, completion_tokens: 4 };
    const { code, out, err } = await benchServe(
      [...args, "--json"],
      server(() => events(usage)),
    );
    expect({ code, err }).toEqual({ code: 0, err: "" });
    const [result] = (JSON.parse(out) as ServeJson).results;
    expect(result).toMatchObject({ users: 2, limit: null });
    expect(result!.counted).toEqual({ prompt_tokens: 60, answer_tokens: 4 });
    const ratio = result!.tokens_per_second_with_prompts! / result!.tokens_per_second;
    expect(ratio).toBeCloseTo(64 / 4, 9);
    expect(asked[0]).toMatchObject({ url: "http://there:1234/v1/models", key: "Bearer secret" });
    const last = asked.at(-1)!;
    expect(last.url).toBe("http://there:1234/v1/completions");
    expect(last.body).toMatchObject({ model: "other-7b", max_tokens: 4, ignore_eos: true });
    expect(new Set(asked.slice(1).map(({ body }) => body.prompt)).size).toBe(asked.length - 1);
  });

  test("without usage, events are counted, and answers that end early are reported", async () => {
    const { code, out, err } = await benchServe(
      args,
      server(() => events()),
    );
    expect(code).toBe(0);
    expect(out).toMatch(/^other-7b at http:\/\/there:1234: prompts of 64 tokens, answers of 4$/m);
    expect(out).toMatch(/^Of 2 users at once, up to 2 get|^None of 2 users at once get/m);
    expect(out).not.toContain("with prompts");
    expect(err).toContain("The server ended answers early: they had 2 tokens on average, not 4.");
  });

  test.each([
    ["no server", () => Promise.reject(new TypeError("fetch failed")), "did not answer (fetch"],
    ["404", server(() => new Response("no such route", { status: 404 })), "answered 404 (no such"],
    ["no text", server(() => 'data: {"choices":[]}\n\n'), "a stream without text"],
    ["no JSON", server(() => "data: hello\n\n"), "got hello, expected a stream of JSON"],
    ["an error", server(() => 'data: {"error":"too long"}\n\n'), 'the error "too long"'],
    ["no end", server(() => new Response("x".repeat(1 << 21))), "a line above"],
  ] as const)("%s", async (_, fetcher, message) => {
    const { code, out, err } = await benchServe(args, fetcher as Fetch);
    expect(out).toBe("");
    expect(code).not.toBe(0);
    expect(err).toContain(message);
  });

  test("Ctrl-C ends all requests", async () => {
    const terminal = new FakeTerminal();
    const fetcher: Fetch = async (url, { signal }) => {
      if (url.endsWith("/v1/models")) return Response.json({ data: [{ id: "slow" }] });
      return await new Promise<Response>((_, reject) => {
        signal!.addEventListener("abort", () => reject(new Error("aborted")));
        queueMicrotask(() => terminal.pressCtrlC());
      });
    };
    const downloads = { ...nodeDownloadPlatform({}), fetch: fetcher as typeof fetch };
    expect(await main(["bench", "serve", ...args], terminal, downloads)).toBe(130);
    expect(terminal.stdout).toBe("");
  });

  test.each([
    [["--url", "there"], "expected an address as in http://127.0.0.1:8080"],
    [["--served-model-name", "x"], "without --url"],
    [["--users", "0"], "Expected numbers separated by commas"],
    [["--sla", "quick"], "as in 2s,20"],
    [["-n", "1"], "Expected a whole number from 2"],
  ])("refused: %j", async (flags, message) => {
    const { code, out, err } = await benchServe(flags);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain(message);
  });
});

test("percentiles, and prompts that are never the same", () => {
  const values = Array.from({ length: 100 }, (_, i) => i + 1);
  expect([0.5, 0.99].map((share) => quantile(values, share))).toEqual([50, 99]);
  expect(quantile([7], 0.5)).toBe(7);
  const prompts = promptSource();
  expect(prompts({ words: 5 }).split(" ")).toHaveLength(5);
  expect(prompts({ words: 8 })).not.toBe(prompts({ words: 8 }));
});
