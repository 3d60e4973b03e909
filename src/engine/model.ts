// The public Model: a thin object on the caller's thread that calls the engine's thread (rpc.ts). Its chats: chat.ts.

import type { AnswerFormat } from "../api/answer-format.ts";
import type {
  AdapterInfo,
  AdapterScale,
  Chat,
  ChatMessage,
  ChatOptions,
  Embedding,
  EmbedOptions,
  EngineStatus,
  GenerateOptions,
  Generation,
  GenerationResult,
  GrammarOptions,
  InputSums,
  LoadedState,
  LoadStateOptions,
  LogitsOptions,
  LogitsResult,
  Model,
  ModelHealth,
  ModelInfo,
  ProfileOptions,
  ProfileReport,
  RerankOptions,
  RerankResult,
  SavedState,
  SaveStateOptions,
  ScoreOptions,
  ScoreResult,
  TemplateOptions,
  TokenEvent,
  TokenizeOptions,
} from "../api/api.ts";
import type { Device } from "../api/rates.ts";
import { isIterable, wrongArgument } from "../base/arguments.ts";
import { contextAdvice } from "../base/context-advice.ts";
import { AbortedError, ContextError, UsageError } from "../base/errors.ts";
import { type CpuTimes, othersCores } from "../base/machine-load.ts";
import { givenOptions } from "../base/options.ts";
import {
  asRendered,
  joined,
  type RenderedPrompt,
  trusted,
  words,
} from "../base/rendered-prompt.ts";
import type { GrammarText } from "../grammar/source.ts";
import { limitsWithDisk } from "../limits/disk.ts";
import { speedLimits } from "../limits/phase.ts";
import { checkCount, checkedIds, checkedMessages, checkOptions, checkText } from "./arguments.ts";
import { isBackground } from "./background.ts";
import { EngineChat } from "./chat.ts";
import type { Connection } from "./connection.ts";
import { type EmbedLine, embedTexts, rerankDocuments } from "./embed-call.ts";
import { startGeneration } from "./generation.ts";
import { grammarSource, grammarText } from "./grammar-options.ts";
import { optionNames } from "./option-names.ts";
import type { Prompt, SavedStatePlace, TokenList } from "./protocol.ts";
import { TextDesk, type TextThread } from "./text-desk.ts";

type CallOptions = {
  onEvent: (event: TokenEvent) => void;
  signal: AbortSignal;
  isBackground: boolean;
};

/** The measured devices that compute the model, one for each part, if all were measured. Never measures. */
export type DeviceLookup = () => Promise<readonly Device[] | undefined>;

export class EngineModel implements Model {
  readonly #line: Connection;
  readonly #devices: DeviceLookup;
  readonly #cpuTimes: () => CpuTimes | undefined;
  readonly #text: TextDesk;
  /** The last grammar that the engine's thread was asked to compile: one at a time, so that they do not add up. */
  #compiled: Promise<unknown> = Promise.resolve();
  /** The value given to setAdapters(). */
  #adapters: readonly AdapterScale[] | undefined;
  /** Its status since unload(). */
  #unloaded: EngineStatus | undefined;

  constructor(
    connection: Connection,
    devices: DeviceLookup,
    text: TextThread,
    cpuTimes: () => CpuTimes | undefined,
  ) {
    this.#line = connection;
    this.#text = new TextDesk(connection, text);
    this.#devices = devices;
    this.#cpuTimes = cpuTimes;
    connection.onRestart = () => this.#restarted();
  }

  get info(): ModelInfo {
    return this.#line.info;
  }

  health({ timeoutMs = 2000 }: { timeoutMs?: number | undefined } = {}): Promise<ModelHealth> {
    return this.#line.health(timeoutMs);
  }

  generate(prompt: PromptInput, options: GenerateOptions = {}): Generation {
    checkOptions("generate()", options);
    return this.run(toPrompt(prompt, options), options);
  }

  chat(options: ChatOptions = {}): Chat {
    return new EngineChat(this, options);
  }

  async tokenize(text: string | RenderedPrompt, options: TokenizeOptions = {}): Promise<number[]> {
    checkOptions("tokenize()", options, optionNames.tokenize);
    const prompt = textPrompt(text, options);
    const { maxTokens = Number.POSITIVE_INFINITY } = options;
    checkCount("maxTokens", maxTokens);
    const longest = this.info.longestToken ?? Number.POSITIVE_INFINITY;
    const least = Math.ceil(promptUnits(prompt) / longest);
    if (least > maxTokens) throw tooManyTokens(least, maxTokens, "at least ");
    const { ids, count } = await this.#tokens(prompt, options, maxTokens);
    if (!ids) throw tooManyTokens(count, maxTokens, "");
    return Array.from(ids);
  }

  async countTokens(text: string | RenderedPrompt, options: TokenizeOptions = {}): Promise<number> {
    checkOptions("countTokens()", options, optionNames.tokenize);
    return (await this.#tokens(textPrompt(text, options), options, -1)).count;
  }

  #tokens(prompt: TextPrompt, options: TokenizeOptions, limit: number): Promise<TokenList> {
    const { signal, priority } = options;
    const units = promptUnits(prompt);
    return this.#text.call(
      "promptTokens",
      { prompt, limit },
      units,
      signal,
      isBackground(priority),
    );
  }

  async detokenize(
    ids: readonly number[],
    options: { special?: boolean | undefined } = {},
  ): Promise<string> {
    checkOptions("detokenize()", options, optionNames.detokenize);
    const { special = false } = options;
    const list = Int32Array.from(checkedIds(ids));
    return await this.#text.call("detokenize", { ids: list, special }, list.length);
  }

  async tokenPieces(ids: readonly number[]): Promise<Uint8Array[]> {
    const list = Int32Array.from(checkedIds(ids));
    const { bytes, ends } = await this.#text.call("pieces", { ids: list }, list.length);
    return Array.from(ends, (end, i) => bytes.subarray(i === 0 ? 0 : ends[i - 1]!, end));
  }

  async logits(prompt: PromptInput, options: LogitsOptions = {}): Promise<LogitsResult> {
    checkOptions("logits()", options, optionNames.logits);
    const { top = 10, greedy = 0, signal } = options;
    const ready = await this.#ready(toPrompt(prompt, options), signal);
    const params = { prompt: ready, top, greedy };
    return await this.#line.call("logits", params, signal ? { signal } : {});
  }

  async score(tokens: readonly number[], options: ScoreOptions = {}): Promise<ScoreResult> {
    checkOptions("score()", options, optionNames.score);
    const { from = 0, firstIsBos = false, rows = false, base, signal } = options;
    const params = { tokens: checkedIds(tokens), from, firstIsBos, rows, base };
    return await this.#line.call("score", params, signal ? { signal } : {});
  }

  async inputSums(
    tokens: readonly number[],
    options: { firstIsBos?: boolean | undefined; signal?: AbortSignal | undefined } = {},
  ): Promise<InputSums[]> {
    checkOptions("inputSums()", options, optionNames.inputSums);
    const { firstIsBos = false, signal } = options;
    const params = { tokens: checkedIds(tokens), firstIsBos };
    return await this.#line.call("inputSums", params, signal ? { signal } : {});
  }

  async embed(
    texts: readonly (string | readonly number[])[],
    options: EmbedOptions = {},
  ): Promise<Embedding[]> {
    checkOptions("embed()", options, optionNames.embed);
    if (typeof texts === "string" || !isIterable(texts)) {
      throw wrongArgument("embed(): texts", texts, "a list of texts or of lists of token ids");
    }
    const inBackground = isBackground(options.priority);
    return await embedTexts(this.#embedLine(inBackground), [...texts], options, (text, prefix) =>
      typeof text === "string"
        ? toPrompt(joined(trusted(prefix), words(text)), options)
        : toPrompt(text, options),
    );
  }

  async rerank(
    query: string,
    documents: readonly string[],
    options: RerankOptions = {},
  ): Promise<RerankResult> {
    checkOptions("rerank()", options, optionNames.rerank);
    if (typeof documents === "string" || !isIterable(documents)) {
      throw wrongArgument("rerank(): documents", documents, "a list of texts");
    }
    return await rerankDocuments(this.#embedLine(false), query, [...documents], options);
  }

  #embedLine(inBackground: boolean): EmbedLine {
    return {
      info: this.info,
      ready: (prompt, signal) => this.#ready(prompt, signal, inBackground),
      embed: (prompts, pooling, onEvent, signal) =>
        this.#line.call(
          "embed",
          { prompts, pooling, isBackground: inBackground },
          { onEvent, isBackground: inBackground, ...(signal && { signal }) },
        ),
    };
  }

  async checkGrammar(options: GrammarOptions): Promise<readonly string[]> {
    checkOptions("checkGrammar()", options, optionNames.checkGrammar);
    const source = grammarSource(options);
    return source === undefined ? [] : await this.#compile(grammarText(source));
  }

  /** Compiles on the engine's thread if that takes little time, otherwise on the text thread, one after the other. */
  async #compile(source: GrammarText): Promise<readonly string[]> {
    const before = this.#compiled;
    const tried = before
      .catch(() => undefined)
      .then(() => this.#line.call("compileGrammar", { source }));
    this.#compiled = tried;
    const notes = await tried;
    if (notes !== undefined) return notes;
    const program = await this.#text.compile(source);
    const how = program ? { source, program } : { source, whole: true };
    return (await this.#line.call("compileGrammar", how)) ?? [];
  }

  async answerFormat(): Promise<AnswerFormat | undefined> {
    const size = this.info.chatTemplate?.length ?? 0;
    return await this.#text.call("answerFormat", undefined, size);
  }

  async applyTemplate(
    messages: readonly ChatMessage[],
    options: TemplateOptions = {},
  ): Promise<RenderedPrompt> {
    checkOptions("applyTemplate()", options, optionNames.applyTemplate);
    const { signal, priority, ...rest } = options;
    const all = { addGenerationPrompt: true, ...givenOptions(rest) };
    const params = { messages: checkedMessages(messages), options: all };
    const units = unitsOf(params.messages) + sizeOf(rest);
    return await this.#text.call("applyTemplate", params, units, signal, isBackground(priority));
  }

  async profile(options: ProfileOptions = {}): Promise<ProfileReport> {
    checkOptions("profile()", options, optionNames.profile);
    const { trace = false, reset = false } = options;
    const devices = await this.#devices();
    return await this.#line.call("profile", { devices, trace, reset });
  }

  /** Used by Chat: a generation that continues a conversation. */
  run(prompt: Prompt, options: GenerateOptions): Generation {
    const { signal, ...more } = options;
    const { schema: _s, regex: _r, choices: _c, grammar: _g, ...rest } = more;
    let grammar: GrammarText | undefined;
    let inBackground: boolean;
    try {
      const source = grammarSource(options);
      grammar = source && grammarText(source);
      inBackground = isBackground(options.priority);
    } catch (error) {
      return startGeneration(() => Promise.reject(error), undefined);
    }
    const before = this.#cpuTimes();
    const generate = async (ready: Prompt, how: CallOptions): Promise<GenerationResult> =>
      await this.#compared(
        await this.#line.call("generate", { prompt: ready, options: rest, grammar }, how),
        before,
      );
    return startGeneration(async (onEvent, either) => {
      const how = { onEvent, signal: either, isBackground: inBackground };
      if (grammar && !either.aborted) await this.#compile(grammar);
      // A small prompt is posted immediately, before anything else that the caller does.
      if (!this.#isLarge(prompt)) return await generate(prompt, how);
      try {
        return await generate(await this.#ready(prompt, either, inBackground), how);
      } catch (error) {
        if (!(error instanceof AbortedError)) throw error;
        // Aborted before it had tokens: any prompt gets the same result from the engine.
        return { ...(await generate({ kind: "tokens", tokens: [0] }, how)), promptTokenIds: [] };
      }
    }, signal);
  }

  #isLarge(prompt: Prompt): boolean {
    return prompt.kind !== "tokens" && this.#text.isLarge(promptUnits(prompt));
  }

  /** Tokenizes a large prompt on the text thread, so that the engine's thread does not spend time on it. */
  async #ready(
    prompt: Prompt,
    signal: AbortSignal | undefined,
    inBackground = false,
  ): Promise<Prompt> {
    if (prompt.kind === "tokens" || !this.#isLarge(prompt)) return prompt;
    if (signal?.aborted) throw new AbortedError("the request");
    const limit = this.info.contextSize;
    const units = promptUnits(prompt);
    const least = units / (this.info.longestToken ?? Number.POSITIVE_INFINITY);
    if (prompt.kind === "text" && least > limit)
      throw tooLong(Math.ceil(least), this.info, "at least ");
    const params = { prompt, limit };
    const { ids, count } = await this.#text.call(
      "promptTokens",
      params,
      units,
      signal,
      inBackground,
    );
    if (!ids) throw tooLong(count, this.info, "");
    return { kind: "tokens", tokens: Array.from(ids) };
  }

  /** Adds the machine's limits, and other programs' share of it since `before`. */
  async #compared(
    result: GenerationResult,
    before: CpuTimes | undefined,
  ): Promise<GenerationResult> {
    const now = before && this.#cpuTimes();
    const others = now && { cores: othersCores(before, now), ofCores: now.cores };
    const devices = await this.#devices();
    const { timings } = result;
    const computed = devices && speedLimits(timings, ...devices);
    const { disk } = this.info;
    const { bytesPerSecond } = disk ?? {};
    const reads = disk && bytesPerSecond && { diskBytes: disk.batchBytes, bytesPerSecond };
    const limits = reads
      ? limitsWithDisk(timings, computed, reads, timings.speculation?.batches)
      : computed;
    return {
      ...result,
      timings: { ...timings, ...(limits && { limits }), ...(others && { others }) },
    };
  }

  async status(): Promise<EngineStatus> {
    if (!this.#line.isLoaded && this.#unloaded) return this.#unloaded;
    return await this.#line.call("status", {});
  }

  async unload(): Promise<boolean> {
    if (!this.#line.isLoaded) return true;
    this.#unloaded = unloadedStatus(await this.status());
    return await this.#line.unload(() => this.#text.isIdle);
  }

  async load(): Promise<void> {
    await this.#line.load();
  }

  async clearCache(): Promise<void> {
    await this.#line.call("clearCache", {});
  }

  async saveState(path: string, options: SaveStateOptions): Promise<SavedState> {
    checkText(path, "saveState(): path");
    return await this.#save(path, options);
  }

  async stateBytes(options: SaveStateOptions): Promise<Uint8Array> {
    return (await this.#save(undefined, options)).data!;
  }

  async #save(
    path: string | undefined,
    options: SaveStateOptions,
  ): Promise<SavedState & { data?: Uint8Array }> {
    checkOptions("saveState()", options, optionNames.saveState);
    const params = { tokens: checkedIds(options.tokens, "saveState(): tokens"), path };
    const { signal } = options;
    return await this.#line.call("saveState", params, signal ? { signal } : {});
  }

  async loadState(
    from: string | File | Uint8Array,
    options: LoadStateOptions = {},
  ): Promise<LoadedState> {
    checkOptions("loadState()", options, optionNames.loadState);
    const { signal } = options;
    return await this.#line.call("loadState", { from: placeOf(from) }, signal ? { signal } : {});
  }

  async forgetState(tokens: readonly number[]): Promise<void> {
    const params = { tokens: checkedIds(tokens, "forgetState(): tokens") };
    await this.#line.call("forgetState", params);
  }

  async forgetConversation(conversation: string): Promise<void> {
    checkText(conversation, "forgetConversation()");
    if (this.#line.isLoaded) await this.#line.call("forgetConversation", { id: conversation });
    else await this.#line.unloaded; // it may still be writing
  }

  adapters(): AdapterInfo[] {
    const scales = this.#adapters && new Map(this.#adapters.map(({ id, scale }) => [id, scale]));
    return (this.info.adapters ?? []).map((adapter) => ({
      ...adapter,
      ...(scales && { scale: scales.get(adapter.id) ?? 0 }),
    }));
  }

  async setAdapters(adapters: readonly AdapterScale[]): Promise<void> {
    await this.#line.call("setAdapters", { adapters });
    this.#adapters = adapters.map(({ id, scale }) => ({ id, scale }));
  }

  /** Another engine knows only the adapters that the model was opened with. */
  #restarted(): void {
    this.#text.reset();
    const adapters = this.#adapters;
    if (adapters) this.#line.call("setAdapters", { adapters }).catch(() => undefined);
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#line.dispose(), this.#text.dispose()]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}

/** The status of an engine that has ended: nothing is held. */
function unloadedStatus(status: EngineStatus): EngineStatus {
  const { ram, ...cache } = status.cache;
  return {
    ...status,
    kvBlocksHeld: 0,
    kvBlocksUsed: 0,
    kvBlocksReserved: 0,
    stateBytesHeld: 0,
    memory: { weightBytes: 0, kvBytes: 0, workBytes: 0 },
    cachedSequences: 0,
    cache: { ...cache, ram: { ...ram, bytes: 0 } },
  };
}

/** The location that saved state is read from. */
function placeOf(from: unknown): SavedStatePlace {
  if (from instanceof Uint8Array) return { kind: "bytes", bytes: from };
  if (typeof File !== "undefined" && from instanceof File) return { kind: "files", files: [from] };
  checkText(from, "loadState(): from");
  return { kind: "path", path: from };
}

type PromptInput = string | RenderedPrompt | readonly number[];
type TextPrompt = Extract<Prompt, { kind: "text" }>;
type TextOptions = Pick<TokenizeOptions, "addBos" | "parseSpecial">;

/** A text is raw: its special tokens count, unless the caller says otherwise. */
function textPrompt(
  text: string | RenderedPrompt,
  { addBos = true, parseSpecial = true }: TextOptions,
): TextPrompt {
  const prompt = asRendered(text);
  if (prompt === undefined) checkText(text);
  const given = prompt ?? trusted(text as string);
  return {
    kind: "text",
    prompt: parseSpecial ? given : words(given.text),
    addBos,
    isRendered: prompt !== undefined,
  };
}

function toPrompt(prompt: PromptInput, options: TextOptions): Prompt {
  if (typeof prompt === "string" || asRendered(prompt)) {
    return textPrompt(prompt as string | RenderedPrompt, options);
  }
  if (!isIterable(prompt)) {
    throw new UsageError(
      `prompt: got ${typeof prompt}, expected text, a rendered prompt or a list of token ids`,
    );
  }
  return { kind: "tokens", tokens: checkedIds(prompt, "prompt") };
}

/** Cost of rendering a message besides its text, in units of text. */
const MESSAGE_UNITS = 64;

function unitsOf(messages: readonly ChatMessage[]): number {
  return messages.reduce((sum, { content }) => sum + MESSAGE_UNITS + (content?.length ?? 0), 0);
}

/** Roughly the amount of text in any data; stops counting when it is large. */
function sizeOf(data: unknown): number {
  const waiting: unknown[] = [data];
  let size = 0;
  while (waiting.length > 0 && size < 1e6) {
    const next = waiting.pop();
    size += 8;
    if (typeof next === "string") size += next.length;
    else if (typeof next === "object" && next !== null) {
      for (const inner of Object.values(next)) waiting.push(inner);
    }
  }
  return size;
}

function promptUnits(prompt: Exclude<Prompt, { kind: "tokens" }>): number {
  if (prompt.kind === "pair") return prompt.query.length + prompt.document.length;
  return prompt.kind === "text" ? prompt.prompt.text.length : unitsOf(prompt.messages);
}

function tooManyTokens(count: number, maxTokens: number, qualifier: string): ContextError {
  return new ContextError(
    `the text has ${qualifier}${count} tokens, and at most ${maxTokens} were asked for (maxTokens)`,
    { tokens: count },
  );
}

function tooLong(count: number, info: ModelInfo, qualifier: string): ContextError {
  return new ContextError(
    `the prompt has ${qualifier}${count} tokens, but the context holds ${info.contextSize}, answer included. ${contextAdvice(info)}`,
    { tokens: count },
  );
}
