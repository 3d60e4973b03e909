// LoRA adapters that are damaged, through `lantern serve`: with --lora, and uploaded for a model that is made with Ollama's API. The server
// says what is wrong with which file and ends with an exit code, or starts and answers; a model with a wrong adapter costs no other one.
// Fields that lie, one by one, are in test/engine/adapters-hostile.test.ts.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Started, startLantern } from "../cluster/processes.ts";
import { type AdapterFileOptions, adapterGguf } from "../support/adapter-file.ts";
import { Random } from "../support/random.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFile, tinyFileVocab } from "../support/tiny-file.ts";
import { post } from "./test-server.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-lora-"));
const tiny = tinyModel({ vocab: tinyFileVocab });
let model: Awaited<ReturnType<typeof tinyFile>>;
/** By what is wrong with it. */
const files = new Map<string, Uint8Array>();

beforeAll(async () => {
  model = await tinyFile({ model: tiny });
  for (const [name, bytes] of await damaged()) files.set(name, bytes);
});
afterAll(() => {
  model?.remove();
  rmSync(folder, { recursive: true, force: true });
});

async function damaged(): Promise<[name: string, bytes: Uint8Array][]> {
  const make = (options: AdapterFileOptions = {}) => adapterGguf(tiny.tensors, options);
  const whole = new Uint8Array(await make());
  const header = 8; // then the number of tensors, the number of keys, and the length of the first key
  const cut = (length: number) => whole.slice(0, length);
  const put = (at: number, value: bigint): Uint8Array => {
    const copy = whole.slice();
    new DataView(copy.buffer).setBigUint64(at, value, true);
    return copy;
  };
  const random = new Random(7);
  const flipped = (from: number, to: number): Uint8Array => {
    const copy = whole.slice();
    for (let i = 0; i < 3; i++) {
      copy[from + random.below(to - from)]! ^= 1 << random.below(8);
    }
    return copy;
  };
  const nan: AdapterFileOptions["change"] = (tensors) =>
    tensors.map((tensor) => ({
      ...tensor,
      data: () => [new Uint8Array(4 * tensor.shape.reduce((a, b) => a * b, 1)).fill(255)],
    }));
  /** Of the same length. */
  const renamed = (from: string, to: string): Uint8Array =>
    Buffer.from(Buffer.from(whole).toString("latin1").replaceAll(from, to), "latin1");
  const cuts = [0, 1, 4, 7, 12, 20, 30, 100, 400, 1000, whole.length >> 1, whole.length - 1];
  const flips = Array.from({ length: 10 }, (_, i) => i);
  return [
    ["whole", whole],
    ...cuts.map((length): [string, Uint8Array] => [`cut-${length}`, cut(length)]),
    ...flips.map((i): [string, Uint8Array] => [`flipped-header-${i}`, flipped(0, 1500)]),
    ...flips
      .slice(0, 4)
      .map((i): [string, Uint8Array] => [`flipped-factors-${i}`, flipped(4000, whole.length)]),
    ["many-tensors", put(header, 2n ** 40n)],
    ["most-tensors", put(header, 2n ** 64n - 1n)],
    ["many-keys", put(header + 8, 2n ** 31n)],
    ["most-keys", put(header + 8, 2n ** 63n)],
    ["long-key", put(header + 16, 2n ** 33n)],
    ["no-tensors", put(header, 0n)],
    ["not-finite", await make({ change: nan })],
    ["other-architecture", await make({ architecture: "gemma2" })],
    ["half-a-pair", await make({ change: (tensors) => tensors.slice(1) })],
    ["no-pairs", await make({ change: () => [] })],
    ["twice", renamed("blk.1.attn_q", "blk.0.attn_q")],
    ["no-layer", renamed("blk.1.attn_q", "blk.9.attn_q")],
    [
      "one-side",
      await make({
        change: (all) => all.map((t) => ({ ...t, shape: [t.shape[0]! * t.shape[1]!] })),
      }),
    ],
    [
      "turned",
      await make({ change: (all) => all.map((t) => ({ ...t, shape: t.shape.toReversed() })) }),
    ],
    ["rank-of-512", await make({ rank: 512 })],
    ["text", new TextEncoder().encode("no adapter\n".repeat(1000))],
    ["zeros", new Uint8Array(100_000)],
  ];
}

const flags = ["--port", "0", "-t", "1", "--no-web", "--no-sessions", "--no-batches"];
const env = { LANTERN_CACHE: join(folder, "cache"), LANTERN_DATA: join(folder, "data") };
const ask = { prompt: "the cat sat", n_predict: 4, temperature: 0, ignore_eos: true };

async function end({ child, ended }: Started): Promise<void> {
  child.kill("SIGKILL");
  await ended;
}

/** What became of `lantern serve --lora PATH`: what it says before it ends, or the answer to a request. */
async function served(path: string): Promise<string> {
  let started: Started;
  try {
    started = await startLantern(["serve", "-m", model.path, "--lora", path, ...flags], { env });
  } catch (error) {
    const { message } = error as Error;
    expect(message).toMatch(/^lantern \S+ ended \(exit code [1-9]\):/);
    expect(message).not.toMatch(/\n +at /); // a stack: a bug
    return message;
  }
  onTestFinished(() => end(started));
  const response = await post(`${started.ready.url}/completion`, ask);
  const answer = (await response.json()) as {
    tokens_predicted?: number;
    error?: { message: string };
  };
  expect(response.status, JSON.stringify(answer)).toBeLessThan(501);
  await end(started);
  return answer.error?.message ?? `answer of ${answer.tokens_predicted} tokens`;
}

const isAnswer = /^answer of 4 tokens$/;
/** What must be said; other files are refused by their names, or answer. */
const says: Readonly<Record<string, RegExp>> = {
  whole: isAnswer,
  "not-finite": /finite|nonsense/,
  "other-architecture": /gemma2/,
  "half-a-pair": /lora_a/,
  "rank-of-512": /rank 512/,
};

test("--lora: every damaged file is refused by its name, or answers", async () => {
  const outcomes: [string, string][] = [];
  for (const [name, bytes] of files) {
    const path = join(folder, `${name}.gguf`);
    writeFileSync(path, bytes);
    outcomes.push([name, await served(path)]);
  }
  for (const [name, outcome] of outcomes) {
    if (says[name]) expect(outcome, name).toMatch(says[name]);
    else if (!isAnswer.test(outcome) && !/nonsense/.test(outcome))
      expect(outcome).toContain(`${name}.gguf`);
    if (/^cut/.test(name)) expect(outcome, name).not.toMatch(isAnswer);
  }
});

test("--lora: what is no file", async () => {
  const place = (name: string) => join(folder, name);
  mkdirSync(place("empty"));
  mkdirSync(place("peft"));
  writeFileSync(place("peft/adapter_config.json"), "{");
  writeFileSync(place("peft/adapter_model.safetensors"), "x");
  symlinkSync("round", place("round"));
  if (process.platform !== "win32") spawnSync("mkfifo", [place("pipe")]);
  for (const name of ["empty", "peft", "round", "pipe", "none"]) {
    const outcome = await served(place(name));
    expect(outcome).toContain(name);
    expect(outcome).not.toMatch(isAnswer);
    if (["empty", "peft"].includes(name)) expect(outcome).toContain("convert_lora_to_gguf.py");
  }
  expect(await served(model.path)).toMatch(/adapter/);
});

test("Ollama's API: a model with a damaged adapter costs no other one", async () => {
  const started = await startLantern(["serve", "--models-dir", dirname(model.path), ...flags], {
    env: { ...env, LANTERN_ADMIN_KEY: "admin" },
  });
  onTestFinished(() => end(started));
  const authorization = "Bearer admin";
  const url = String(started.ready.url);
  const generate = async (name: string): Promise<string> => {
    const options = { num_predict: 4, temperature: 0, ignore_eos: true };
    const body = { model: name, prompt: "the cat sat", raw: true, stream: false, options };
    const response = await post(`${url}/api/generate`, body, { authorization });
    const answer = (await response.json()) as { eval_count?: number; error?: string };
    expect(response.status, JSON.stringify(answer)).toBeLessThan(501);
    return answer.error ?? `answer of ${answer.eval_count} tokens`;
  };
  for (const [name, bytes] of files) {
    const digest = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
    const headers = { authorization };
    const body = new Uint8Array(bytes);
    const upload = await fetch(`${url}/api/blobs/${digest}`, { method: "POST", headers, body });
    expect(upload.status).toBe(201);
    const made = await post(
      `${url}/api/create`,
      { model: name, from: "tiny", adapters: { "a.gguf": digest }, stream: false },
      headers,
    );
    const outcome = made.ok ? await generate(name) : await made.text();
    if (says[name]) expect(outcome, name).toMatch(says[name]);
    else expect(outcome, name).toMatch(/adapter|lora|gguf|nonsense|answer of 4 tokens/);
    expect(outcome).not.toContain(folder); // clients are not told where files are
    expect(await generate("tiny")).toMatch(isAnswer);
  }
});
