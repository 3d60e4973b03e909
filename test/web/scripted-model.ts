// A model that says what the test wants, at the pace that the test wants: the pages are tested with real HTTP, a real
// database and a real browser, and only the words are made up. Its tokens are letters.

import type {
  AnswerFormat,
  ChatMessage,
  EngineStatus,
  GenerateOptions,
  Generation,
  GenerationResult,
  Model,
  ModelInfo,
  TokenEvent,
} from "../../src/index.ts";
import { UsageError, words } from "../../src/index.ts";

export interface Script {
  /** The answer to a prompt, which is the conversation's text; called once per answer. */
  answer(prompt: string, options: GenerateOptions): string;
  /** Between two pieces of an answer. */
  msPerPiece?: number;
  /** Awaited before each piece, with what was said before it, unless somebody stops the answer. */
  before?: (said: string) => Promise<void> | undefined;
  contextSize?: number;
  chat?: boolean;
  /** How it writes reasoning and calls; default: all is text. */
  format?: AnswerFormat;
  /** It makes embeddings, and writes no text. */
  isEncoder?: boolean;
}

const pieceLength = 4;

/** For `before`: goes no further than this text until somebody stops the answer. */
export function heldAt(text: string): NonNullable<Script["before"]> {
  return (said) => (said.includes(text) ? new Promise(() => {}) : undefined);
}

const idle: EngineStatus = {
  running: 0,
  waiting: 0,
  kvBlocks: 1,
  kvBlocksUsed: 0,
  kvBlocksReserved: 0,
  kvBlocksHeld: 0,
  kvBlockTokens: 32,
  stateBytes: 0,
  stateBytesHeld: 0,
  memory: { weightBytes: 0, kvBytes: 0, workBytes: 0 },
  cachedSequences: 0,
  cache: {
    ram: { bytes: 0, budgetBytes: 0 },
    disk: { bytes: 0, budgetBytes: 0 },
    bytesPerToken: 0,
    tokens: { kv: 0, ram: 0, disk: 0, computed: 0 },
    computedAgain: {},
    restoredBytes: { ram: 0, disk: 0 },
    writtenBytes: 0,
    evicted: { kv: 0, ram: 0, disk: 0 },
    damaged: 0,
  },
  batches: 0,
  batchSequences: 0,
};

export function scriptedModel(script: Script): Model {
  const { answer, msPerPiece = 1, contextSize = 100_000, chat = true, isEncoder = false } = script;
  const info: ModelInfo = {
    name: "scripted",
    format: "none",
    architecture: "llama",
    parameters: 1,
    weightType: "f32",
    weightBytes: 4,
    kvType: "f16",
    kvBytesPerToken: 2,
    stateBytes: 2 * contextSize,
    contextSize,
    cacheTokens: contextSize,
    trainedContext: contextSize,
    vocabSize: 0x110000,
    layers: 1,
    hasChatTemplate: chat,
    endTokens: [],
    bosToken: "",
    eosToken: "",
    longestToken: undefined,
    generates: !isEncoder,
    embedding: { size: 8, pooling: "mean" },
    backend: { name: "reference", threads: 1, placement: [], notes: [] },
  };
  // What the server asks of a model for a page, and no more.
  const scripted: Pick<
    Model,
    | "info"
    | "health"
    | "status"
    | "generate"
    | "tokenize"
    | "detokenize"
    | "applyTemplate"
    | "answerFormat"
    | "checkGrammar"
    | "profile"
    | "forgetConversation"
    | "dispose"
  > = {
    info,
    health: async () => ({ status: "ok" as const, restarts: 0 }),
    status: async () => idle,
    generate: (prompt, options = {}) => {
      const ids = Array.isArray(prompt) ? (prompt as number[]) : lettersOf(prompt as string);
      return generation(
        ids.length,
        answer(textOf(ids), options),
        { ...script, msPerPiece },
        options,
      );
    },
    tokenize: async (prompt) => lettersOf(typeof prompt === "string" ? prompt : prompt.text),
    detokenize: async (ids) => textOf(ids),
    applyTemplate: async (messages) => words(messages.map(turn).join("")),
    answerFormat: async () => script.format,
    checkGrammar: async () => [],
    profile: async () => {
      throw new UsageError("the scripted model was opened without a profile");
    },
    forgetConversation: async () => {},
    dispose: async () => {},
  };
  return scripted as Model;
}

function lettersOf(text: string): number[] {
  return Array.from(text, (letter) => letter.codePointAt(0)!);
}

function textOf(letters: readonly number[]): string {
  return letters.map((letter) => String.fromCodePoint(letter)).join("");
}

function turn({ role, content }: ChatMessage): string {
  return `<${role}>${content}\n`;
}

function generation(
  promptTokens: number,
  text: string,
  { msPerPiece, before }: { msPerPiece: number } & Pick<Script, "before">,
  { signal, maxTokens, resumeTokens = [] }: GenerateOptions,
): Generation {
  const pieces = text.match(new RegExp(`[^]{1,${pieceLength}}`, "gu")) ?? [];
  const wanted = pieces.slice(0, maxTokens);
  const { promise: result, resolve } = Promise.withResolvers<GenerationResult>();
  let said = resumeTokens.length;
  const end = (aborted: boolean): void => {
    const length = wanted.length < pieces.length ? "length" : "end";
    const none = { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 };
    resolve({
      text: wanted.slice(0, said).join(""),
      promptTokenIds: [],
      tokenIds: wanted.slice(0, said).map(() => 1),
      stopReason: aborted ? "aborted" : length,
      timings: {
        loadMs: 0,
        promptTokens,
        cachedTokens: 0,
        promptMs: 1,
        generatedTokens: said,
        generatedMs: said * msPerPiece,
        sampledTokens: said,
        sampleMs: 0,
        totalMs: 1 + said * msPerPiece,
        work: { prompt: none, generation: none },
      },
    });
  };
  const stopped = new Promise<void>((resolve) =>
    signal?.addEventListener("abort", () => resolve()),
  );
  async function* tokens(): AsyncGenerator<TokenEvent> {
    for (const piece of wanted.slice(said)) {
      await Promise.race([before?.(wanted.slice(0, said).join("")), stopped]);
      await new Promise((wake) => setTimeout(wake, msPerPiece));
      if (signal?.aborted) break;
      said++;
      yield { id: 1, text: piece };
    }
    end(signal?.aborted ?? false);
  }
  return {
    tokens,
    result,
    async *[Symbol.asyncIterator]() {
      for await (const { text: piece } of tokens()) yield piece;
    },
  };
}
