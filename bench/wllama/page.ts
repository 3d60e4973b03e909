// What runs in the page of bench/wllama.ts: both engines on one File. The functions are sent to the browser as text, so
// each must stand alone: no imports at run time, nothing of this module besides types.
//
// Speeds come from each engine's own clock. wllama's is llama.cpp's, on the thread that computes: what its JavaScript
// adds is not counted against it.

import type { Model } from "../../src/index.ts";
import type { Speed } from "../side-by-side.ts";

/** The part of wllama's interface that is used here, so that this compiles without it. */
interface Wllama {
  loadModel(files: Blob[], options: Record<string, unknown>): Promise<void>;
  getNumThreads(): number;
  createCompletion(options: Record<string, unknown>): Promise<{ timings: WllamaTimings }>;
  exit(): Promise<void>;
}

interface WllamaTimings {
  prompt_n: number;
  prompt_ms: number;
  predicted_n: number;
  predicted_ms: number;
}

interface WllamaModule {
  Wllama: {
    new (paths: { default: string }, options: Record<string, unknown>): Wllama;
    getLibllamaVersion(): string;
  };
}

declare global {
  interface Window {
    wllamaModule: WllamaModule;
    engines: { lantern: Model; wllama: Wllama };
  }
}

export interface LoadOptions {
  threads: number;
  contextSize: number;
  wasm: string;
}

/** Texts, because wllama takes no tokens; how many tokens they are is known beforehand. */
export interface RoundInput {
  prompt: string;
  promptTokens: number;
  start: string;
  predict: number;
}

/** Opens the picked file with both; says what came of it. */
export async function load(options: LoadOptions): Promise<{ threads: number[]; notes: string[] }> {
  const { threads, contextSize, wasm } = options;
  const file = document.querySelector("input")!.files![0]!;
  const silent = { debug() {}, log() {}, warn() {}, error: console.error };
  const wllama = new window.wllamaModule.Wllama(
    { default: wasm },
    { suppressNativeLog: true, logger: silent },
  );
  await wllama.loadModel([file], {
    n_ctx: contextSize,
    n_threads: threads,
    n_gpu_layers: 0,
    n_parallel: 1,
  });
  const lantern = await window.lantern.open(file, { threads, contextSize });
  window.engines = { lantern, wllama };
  const { backend } = lantern.info;
  return { threads: [backend.threads, wllama.getNumThreads()], notes: [...backend.notes] };
}

export async function unload(): Promise<void> {
  await window.engines.lantern.dispose();
  await window.engines.wllama.exit();
}

export async function measureLantern(input: RoundInput): Promise<Speed> {
  const { prompt, start, predict } = input;
  const run = async (text: string, maxTokens: number) => {
    const options = { temperature: 0, ignoreEos: true, maxTokens };
    return (await window.engines.lantern.generate(text, options).result).timings;
  };
  const read = await run(prompt, 1);
  const generated = await run(start, predict + 1); // the first token is chosen from the prompt's logits
  return {
    prompt: (read.promptTokens * 1000) / read.promptMs,
    generation: (predict * 1000) / generated.generatedMs,
  };
}

export async function measureWllama(input: RoundInput): Promise<Speed> {
  const { prompt, promptTokens, start, predict } = input;
  const run = async (text: string, maxTokens: number) => {
    const { timings } = await window.engines.wllama.createCompletion({
      prompt: text,
      max_tokens: maxTokens,
      temperature: 0,
      top_k: 1,
      samplers: ["top_k"], // the likeliest token, without the work of other samplers
      ignore_eos: true,
      cache_prompt: false,
    });
    if (timings.predicted_n !== maxTokens) {
      throw new Error(`wllama generated ${timings.predicted_n} tokens, expected ${maxTokens}`);
    }
    return timings;
  };
  const read = await run(prompt, 1);
  if (read.prompt_n !== promptTokens) {
    throw new Error(`wllama read ${read.prompt_n} tokens, expected ${promptTokens}`);
  }
  const generated = await run(start, predict + 1); // its clock, too, starts with the first token
  return {
    prompt: (promptTokens * 1000) / read.prompt_ms,
    generation: (predict * 1000) / generated.predicted_ms,
  };
}
