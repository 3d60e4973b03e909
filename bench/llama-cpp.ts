// llama.cpp as a contestant, through the npm package node-llama-cpp (peer.ts says where it is looked for).
//
// The types below are the part of its interface that is used here, so that this compiles without it.

import { pathToFileURL } from "node:url";
import type { Contestant } from "../apps/cli/bench/measure.ts";
import { locatePeer } from "./peer.ts";

/** What proposes tokens to a sequence. */
type TokenPredictor = object;

export interface LlamaSequence {
  /** Tokens that were proposed, by whether they were right. */
  readonly tokenPredictions: { readonly validated: number; readonly refuted: number };
  clearHistory(): Promise<void>;
  evaluateWithoutGeneratingNewTokens(tokens: number[]): Promise<void>;
  evaluate(
    tokens: number[],
    options: { temperature: number; yieldEogToken: boolean; grammarEvaluationState?: object },
  ): AsyncGenerator<number, void, undefined>;
}

interface LlamaContext {
  getSequence(options?: { tokenPredictor: TokenPredictor }): LlamaSequence;
  dispose(): Promise<void>;
}

interface LlamaEmbeddingContext {
  getEmbeddingFor(tokens: number[]): Promise<unknown>;
  dispose(): Promise<void>;
}

interface LlamaModel {
  /** `special`: control tokens are read as such. */
  tokenize(text: string, special?: boolean): number[];
  createEmbeddingContext(options: {
    contextSize: number;
    batchSize: number;
    threads: number;
  }): Promise<LlamaEmbeddingContext>;
  createContext(options: {
    contextSize: number;
    batchSize: number;
    threads: number;
    sequences?: number;
  }): Promise<LlamaContext>;
  dispose(): Promise<void>;
}

export interface Llama {
  /** "b5000" or the like. */
  readonly llamaCppRelease: { repo: string; release: string };
  loadModel(options: { modelPath: string }): Promise<LlamaModel>;
  createGrammar(options: { grammar: string }): Promise<object>;
}

interface LlamaPackage {
  readonly InputLookupTokenPredictor: new () => TokenPredictor & {
    /** It looks only there. */
    updateInputTokens(tokens: readonly number[]): void;
  };
  readonly DraftSequenceTokenPredictor: new (draft: LlamaSequence) => TokenPredictor;
  readonly LlamaGrammarEvaluationState: new (options: {
    model: LlamaModel;
    grammar: object;
  }) => object;
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
  const { getLlama } = await loadPackage();
  // maxThreads 0: a context takes exactly the threads that it was told to.
  const quiet = { logLevel: "error", progressLogs: false } as const;
  return await getLlama({ gpu: false, build: "never", maxThreads: 0, ...quiet });
}

export async function loadPackage(): Promise<LlamaPackage> {
  const path = locatePeer("node-llama-cpp", "node-llama-cpp@3.22.1");
  return (await import(pathToFileURL(path).href)) as LlamaPackage;
}

/** Ends what has been opened, the last first. */
function disposing(...opened: readonly { dispose(): Promise<void> }[]): AsyncDisposable {
  return {
    async [Symbol.asyncDispose]() {
      for (const one of opened.toReversed()) await one.dispose();
    },
  };
}

/** A model with one context: F16 KV cache, flash attention as llama.cpp decides, the prompt in one batch. */
async function openSequence(llama: Llama, path: string, threads: number, contextSize: number) {
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize, batchSize: contextSize, threads });
  return { model, sequence: context.getSequence(), ...disposing(model, context) };
}

function rate(count: number, startedMs: number): number {
  return (count * 1000) / (performance.now() - startedMs);
}

export async function llamaContestant(
  llama: Llama,
  path: string,
  threads: number,
  contextSize: number,
): Promise<Contestant & AsyncDisposable> {
  const { sequence, ...opened } = await openSequence(llama, path, threads, contextSize);
  return {
    ...opened,
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

/** Generates with or without a grammar. Its package applies a grammar to the whole vocabulary before each choice. */
export interface LlamaGenerator extends AsyncDisposable {
  /** Greedy; tokens per second. `grammar`: GBNF; undefined: free text. */
  generate(prompt: string, count: number, grammar: string | undefined): Promise<number>;
}

export async function llamaWithGrammar(
  llama: Llama,
  path: string,
  threads: number,
  contextSize: number,
): Promise<LlamaGenerator> {
  const { LlamaGrammarEvaluationState: State } = await loadPackage();
  const { model, sequence, ...opened } = await openSequence(llama, path, threads, contextSize);
  return {
    ...opened,
    async generate(prompt, count, grammar) {
      await sequence.clearHistory();
      const compiled = grammar && (await llama.createGrammar({ grammar }));
      const tokens = sequence.evaluate(model.tokenize(prompt), {
        temperature: 0,
        yieldEogToken: true,
        ...(compiled && { grammarEvaluationState: new State({ model, grammar: compiled }) }),
      });
      await tokens.next();
      const started = performance.now();
      for (let i = 1; i < count; i++) {
        if ((await tokens.next()).done) throw new Error(`llama.cpp: only ${i} tokens`);
      }
      const speed = rate(count - 1, started);
      await tokens.return();
      return speed;
    },
  };
}

/** Grammars of JSON schemas over the vocabulary of a file. */
export interface LlamaGrammars {
  /** Rejects where the schema is refused. Returns what begins a text. */
  compile(schema: unknown): Promise<() => LlamaGrammarState>;
}

interface LlamaGrammarState {
  allows(token: number): boolean;
  accept(token: number): void;
  /** Whether the text may end here. */
  readonly isComplete: boolean;
}

/** Internal parts of the package: it shows no mask otherwise. */
interface LlamaInternals {
  readonly _bindings: {
    readonly AddonSampler: {
      acceptGrammarEvaluationStateToken(state: object, token: number): void;
      canBeNextTokenForGrammarEvaluationState(state: object, token: number): boolean;
    };
  };
  createGrammarForJsonSchema(schema: unknown): Promise<object>;
}

/** `vocab`: a GGUF file that may have no weights. */
export async function llamaGrammars(vocab: string): Promise<LlamaGrammars> {
  const { LlamaGrammarEvaluationState: State } = await loadPackage();
  const llama = await loadLlama();
  const { _bindings: bindings } = llama as unknown as LlamaInternals;
  const { AddonSampler: sampler } = bindings;
  const options = { modelPath: vocab, vocabOnly: true };
  const model = await llama.loadModel(options);
  const { eos, eot } = (model as unknown as { tokens: Record<"eos" | "eot", number | null> })
    .tokens;
  const ends = [eos, eot].filter((token) => token !== null);
  return {
    async compile(schema) {
      const internals = llama as unknown as LlamaInternals;
      const grammar = await internals.createGrammarForJsonSchema(schema);
      return () => {
        const { _state: state } = new State({ model, grammar }) as { _state: object };
        const allows = (token: number) =>
          sampler.canBeNextTokenForGrammarEvaluationState(state, token);
        return {
          allows,
          accept: (token) => sampler.acceptGrammarEvaluationStateToken(state, token),
          get isComplete() {
            return ends.some(allows);
          },
        };
      };
    },
  };
}
