// Fault injection: every command, with one call of files, databases or the network failing (a full disk, no permission, an
// error of the disk, a lost connection), each in turn. A command then recovers, or says in a sentence what went wrong; there is no stack, no
// hang, and nothing half-written. LANTERN_TEST_FAULTS=all tries every call site instead of some of each command.

import { spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DownloadServer } from "../catalog/download-server.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { tinyFolder } from "../tools/tiny-folder.ts";
import type { FaultJob, FaultRun } from "./fault-process.ts";

type Case = Pick<FaultJob, "args" | "requests" | "lines"> & {
  /** Files that a good run makes; after a failed one they are not there, or whole. */
  made?: string[];
  /** Files that may be left for the next run to go on with. */
  resumed?: RegExp;
  /** How many faults are tried when not all are. */
  some: number;
};

const model = "FOLDER/tiny.gguf";
const story = { mode: "story", model: null };

const cases: Record<string, Case> = {
  run: {
    some: 4,
    args: [
      "run",
      "-m",
      model,
      "-f",
      "FOLDER/prompt.txt",
      "-n",
      "2",
      "--profile",
      "FOLDER/trace.json",
    ],
    made: ["trace.json"],
  },
  chat: {
    some: 2,
    args: ["chat", "-m", model, "-n", "2"],
    lines: ["hi", "/save FOLDER/talk.md"],
    made: ["talk.md"],
  },
  inspect: { some: 4, args: ["inspect", model] },
  tokenize: { some: 2, args: ["tokenize", "-m", model, "the cat"] },
  logits: { some: 0, args: ["logits", "-m", model, "-p", "the cat"] },
  limits: { some: 0, args: ["limits", model, "--plot", "FOLDER/plot.svg"], made: ["plot.svg"] },
  bench: { some: 0, args: ["bench", "-m", model, "-p", "4", "-n", "2", "-r", "1"] },
  perplexity: {
    some: 2,
    args: [
      "perplexity",
      "-m",
      model,
      "-f",
      "FOLDER/text.txt",
      "-c",
      "64",
      "--chunks",
      "1",
      "--save-base",
      "FOLDER/base",
    ],
    made: ["base"],
  },
  quantize: { some: 6, args: ["quantize", model, "FOLDER/out.gguf", "q8_0"], made: ["out.gguf"] },
  convert: { some: 8, args: ["convert", "FOLDER/hf", "FOLDER/out.gguf"], made: ["out.gguf"] },
  imatrix: {
    some: 2,
    args: [
      "imatrix",
      "-m",
      model,
      "-f",
      "FOLDER/text.txt",
      "-c",
      "64",
      "--chunks",
      "1",
      "-o",
      "FOLDER/i.gguf",
    ],
    made: ["i.gguf"],
  },
  batch: {
    some: 6,
    args: ["batch", "FOLDER/requests.jsonl", "-o", "FOLDER/answers.jsonl", "-m", model],
    made: ["answers.jsonl"],
    resumed: /^answers\.jsonl\.batch\//,
  },
  models: { some: 3, args: ["models"] },
  ps: { some: 1, args: ["ps"] },
  rm: { some: 6, resumed: /old\.gguf\.lock$/, args: ["rm", "hf:o/old/old.gguf", "-y"] },
  search: { some: 1, args: ["search", "tiny"] },
  pull: {
    some: 12,
    args: ["pull", "hf:o/tiny/tiny.gguf"],
    made: ["cache/hf/o/tiny/tiny.gguf"],
    resumed: /tiny\.gguf\.(part|part\.json|lock)$/,
  },
  serve: {
    some: 8,
    // What could not be removed, the next "lantern ps" removes.
    // A log that is emptied at the next start, the note of a process that has ended, and a whole backup, whose name has its time.
    resumed:
      /(sessions|batches)\.db-(wal|holder)$|sessions\.db\.backup-[\dTZ-]+$|\.servers\/\d+\.json$/,
    args: ["serve", "-m", model, "--port", "0", "--no-web", "--no-token"],
    requests: [
      { path: "/lantern/v1/sessions", method: "POST", body: story, as: "session" },
      {
        path: "/lantern/v1/sessions/<session>/messages",
        method: "POST",
        body: { role: "assistant", content: "once" },
      },
      { path: "/lantern/v1/sessions" },
      { path: "/lantern/v1/search?q=once" },
      { path: "/lantern/v1/sessions/<session>/export", as: "exported" },
      { path: "/lantern/v1/import", method: "POST", body: "<exported>" },
      { path: "/lantern/v1/sessions/<session>", method: "DELETE" },
      { path: "/v1/completions", method: "POST", body: { prompt: "the cat", max_tokens: 2 } },
    ],
  },
};

/** Of a batch. */
const requests = ["the cat", "a mat", "once"].map((prompt, i) => ({
  custom_id: `request ${i}`,
  method: "POST",
  url: "/v1/completions",
  body: { prompt, max_tokens: 2 },
}));

const all = process.env.LANTERN_TEST_FAULTS === "all";
const wanted = process.env.LANTERN_TEST_FAULTS_OF?.split(",");
const folder = fs.mkdtempSync(path.join(tmpdir(), "lantern-faults-"));
const template = path.join(folder, "template");
const hub = new DownloadServer();

beforeAll(async () => {
  const bytes = await tinyGguf();
  const put = (name: string, content: Uint8Array | string): void => {
    fs.mkdirSync(path.dirname(path.join(template, name)), { recursive: true });
    fs.writeFileSync(path.join(template, name), content);
  };
  put("tiny.gguf", bytes);
  put("prompt.txt", "the cat");
  put("text.txt", "the cat sat on a mat. ".repeat(40));
  put("requests.jsonl", requests.map((request) => `${JSON.stringify(request)}\n`).join(""));
  put("cache/hf/o/old/old.gguf", bytes);
  put("data/keep", "");
  for (const [name, content] of Object.entries(tinyFolder())) put(`hf/${name}`, content);
  hub.files.set("o/tiny/tiny.gguf", bytes);
  await hub.start();
});
afterAll(async () => {
  await hub.stop();
  fs.rmSync(folder, { recursive: true, force: true });
});

describe("one call fails", { timeout: all ? 1_200_000 : 120_000 }, () => {
  for (const [name, { made = [], resumed, ...rest }] of Object.entries(cases)) {
    if (wanted ? !wanted.includes(name) : !all && rest.some === 0) continue;
    test(name, async () => {
      const [good, ...runs] = await runsOf(name, rest);
      expect(good, good?.err).toMatchObject({ code: 0, stray: [] });
      expect(
        good!.statuses.filter((status) => status < 200 || status > 299),
        good!.err,
      ).toEqual([]);
      expect(Object.keys(good!.files)).toEqual(expect.arrayContaining(made));
      expect(runs.length).toBeGreaterThan(0);
      for (const run of runs) expectHarmless(run, good!, made, resumed);
    });
  }
});

/** Says all that is wrong: trying every call takes minutes. */
function expectHarmless(run: FaultRun, good: FaultRun, made: string[], resumed?: RegExp): void {
  const at = `with a failing ${run.fault}: code ${run.code}, ${run.err.slice(-500)}`;
  expect.soft(run.stray, at).toEqual([]);
  expect.soft(run.code, at).toBeGreaterThanOrEqual(0); // it ended
  expect.soft(run.err, at).not.toMatch(/[Tt]his is a bug|^ +at |TypeError/m);
  if (run.code !== 0) expect.soft(run.err, at).toMatch(/^lantern: ./m);
  // A conversation goes on although it could not be saved, and says so.
  const isMade = made.every((name) => name in run.files);
  if (run.code === 0 && !isMade) expect.soft(run.out + run.err, at).toMatch(/cannot write ".+": /);
  for (const name of Object.keys(run.files)) {
    const isKnown = name in good.files || fs.existsSync(path.join(template, name));
    expect.soft(isKnown || resumed?.test(name), `${name} was left ${at}`).toBe(true);
  }
  for (const name of made.filter((each) => each in run.files && sameEachTime(each))) {
    expect.soft(run.files[name], `${name} is half-written ${at}`).toBe(good.files[name]);
  }
}

/** Times and dates are written into the others. */
function sameEachTime(name: string): boolean {
  return /\.gguf$|^base$/.test(name);
}

async function runsOf(name: string, rest: Case): Promise<FaultRun[]> {
  const place = path.join(folder, name);
  fs.mkdirSync(place);
  const env = {
    HOME: "FOLDER",
    LANTERN_CACHE: "FOLDER/cache",
    LANTERN_DATA: "FOLDER/data",
    HF_ENDPOINT: hub.url,
    LANTERN_HTTP_TIMEOUT: "5",
    LANTERN_NO_LIMIT: "1",
  };
  const { some, ...asked } = rest;
  const job: FaultJob = { template, env, most: all ? 10_000 : some, ...asked };
  fs.writeFileSync(path.join(place, "job.json"), JSON.stringify(job));
  const [faulty, script] = ["./faulty-io.ts", "./fault-process.ts"].map((file) =>
    fileURLToPath(new URL(file, import.meta.url)),
  );
  const flags = ["--no-warnings", "--import", faulty!, script!, path.join(place, "job.json")];
  const child = spawn(process.execPath, flags, { stdio: ["ignore", "pipe", "pipe"] });
  const [out, err] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "exit"),
  ]);
  expect(err).toBe("");
  return out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as FaultRun);
}
