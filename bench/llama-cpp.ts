// llama.cpp as a contestant, through the npm package node-llama-cpp (locatePeer() says where it is looked for).
//
// The types below are the part of its interface that is used here, so that this compiles without it.

import { pathToFileURL } from "node:url";
import type { Contestant } from "../apps/cli/bench/measure.ts";
import { locatePeer } from "./harness.ts";

interface LlamaSequence {
  clearHistory(): Promise<void>;
  evaluateWithoutGeneratingNewTokens(tokens: number[]): Promise<void>;
  evaluate(
    tokens: number[],
    options: { temperature: number; yieldEogToken: boolean },
  ): AsyncGenerator<number, void, undefined>;
}

interface LlamaContext {
  getSequence(): LlamaSequence;
  dispose(): Promise<void>;
}

interface LlamaEmbeddingContext {
  getEmbeddingFor(tokens: number[]): Promise<unknown>;
  dispose(): Promise<void>;
}

interface LlamaSizes {
  readonly contextSize: number;
  readonly batchSize: number;
  readonly threads: number;
}

interface LlamaModel {
  createEmbeddingContext(sizes: LlamaSizes): Promise<LlamaEmbeddingContext>;
  createContext(sizes: LlamaSizes): Promise<LlamaContext>;
  dispose(): Promise<void>;
}

export interface Llama {
  /** "b5000" or the like. */
  readonly llamaCppRelease: { repo: string; release: string };
  loadModel(options: { modelPath: string }): Promise<LlamaModel>;
}

interface LlamaPackage {
  getLlama(options: {
    gpu: false;
    build: "never";
    maxThreads: number;
    logLevel: "error";
    progressLogs: false;
  }): Promise<Llama>;
}

/** The library, without a GPU; a SourceError that says how to install it where it is not there. */
export async function loadLlama(): Promise<Llama> {
  const path = locatePeer("node-llama-cpp", "node-llama-cpp@3.22.1");
  const { getLlama } = (await import(pathToFileURL(path).href)) as LlamaPackage;
  // maxThreads 0: a context takes exactly the threads that it was told to.
  const quiet = { logLevel: "error", progressLogs: false } as const;
  return await getLlama({ gpu: false, build: "never", maxThreads: 0, ...quiet });
}

/** Ends what has been opened, the last first. */
function disposing(...opened: readonly { dispose(): Promise<void> }[]): AsyncDisposable {
  return {
    async [Symbol.asyncDispose]() {
      for (const one of opened.toReversed()) await one.dispose();
    },
  };
}

function rate(count: number, startedMs: number): number {
  return (count * 1000) / (performance.now() - startedMs);
}

/** A model with one context: F16 KV cache, flash attention as llama.cpp decides, the prompt in one batch. */
export async function llamaContestant(
  llama: Llama,
  path: string,
  threads: number,
  contextSize: number,
): Promise<Contestant & AsyncDisposable> {
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize, batchSize: contextSize, threads });
  const sequence = context.getSequence();
  return {
    ...disposing(model, context),
    async prompt(tokens) {
      await sequence.clearHistory();
      const started = performance.now();
      await sequence.evaluateWithoutGeneratingNewTokens([...tokens]);
      return rate(tokens.length, started);
    },
    async generate(first, count) {
      await sequence.clearHistory();
      const tokens = sequence.evaluate([first], { temperature: 0, yieldEogToken: true });
      // The first token is chosen from the prompt's logits; each further one is a step.
      await tokens.next();
      const started = performance.now();
      for (let i = 0; i < count; i++) await tokens.next();
      const speed = rate(count, started);
      await tokens.return();
      return speed;
    },
  };
}

/** Makes embeddings of texts, one at a time, each in one batch. */
export interface LlamaEmbedder extends AsyncDisposable {
  embed(texts: readonly (readonly number[])[]): Promise<void>;
}

export async function llamaEmbedder(
  llama: Llama,
  path: string,
  threads: number,
  contextSize: number,
): Promise<LlamaEmbedder> {
  const model = await llama.loadModel({ modelPath: path });
  const sizes = { contextSize, batchSize: contextSize, threads };
  const context = await model.createEmbeddingContext(sizes);
  return {
    ...disposing(model, context),
    async embed(texts) {
      for (const tokens of texts) await context.getEmbeddingFor([...tokens]);
    },
  };
}
