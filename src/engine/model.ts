// The public Model and Chat: thin objects on the caller's thread that talk to the engine over the line (rpc.ts).

import type {
  Chat,
  ChatMessage,
  ChatOptions,
  Embedding,
  EmbedOptions,
  EngineStatus,
  GenerateOptions,
  Generation,
  GenerationResult,
  InputSums,
  LogitsOptions,
  LogitsResult,
  Model,
  ModelInfo,
  ProfileOptions,
  ProfileReport,
  ScoreOptions,
  ScoreResult,
  TemplateOptions,
} from "../api.ts";
import { DisposedError, UsageError } from "../base/errors.ts";
import type { Device } from "../limits/device.ts";
import { speedLimits } from "../limits/phase.ts";
import { startGeneration } from "./generation.ts";
import type { Prompt } from "./protocol.ts";
import type { EngineLine } from "./rpc.ts";

/** What computes the model, a device for each of its places, where all of them were measured. Never measures. */
export type DeviceLookup = () => Promise<readonly Device[] | undefined>;

export class EngineModel implements Model {
  readonly info: ModelInfo;
  readonly #line: EngineLine;
  readonly #devices: DeviceLookup;

  constructor(line: EngineLine, info: ModelInfo, devices: DeviceLookup) {
    this.#line = line;
    this.#devices = devices;
    this.info = info;
  }

  generate(prompt: string | readonly number[], options: GenerateOptions = {}): Generation {
    return this.run(toPrompt(prompt, options.addBos), options);
  }

  chat(options: ChatOptions = {}): Chat {
    return new EngineChat(this, options);
  }

  tokenize(
    text: string,
    options: { addBos?: boolean; parseSpecial?: boolean } = {},
  ): Promise<number[]> {
    const { addBos = true, parseSpecial = true } = options;
    return this.#line.call("tokenize", { text, addBos, parseSpecial });
  }

  detokenize(ids: readonly number[], options: { special?: boolean } = {}): Promise<string> {
    return this.#line.call("detokenize", { ids: [...ids], special: options.special ?? false });
  }

  logits(prompt: string | readonly number[], options: LogitsOptions = {}): Promise<LogitsResult> {
    const { top = 10, greedy = 0, addBos, signal } = options;
    return this.#line.call(
      "logits",
      { prompt: toPrompt(prompt, addBos), top, greedy },
      signal ? { signal } : {},
    );
  }

  score(tokens: readonly number[], options: ScoreOptions = {}): Promise<ScoreResult> {
    const { from = 0, firstIsBos = false, rows = false, base, signal } = options;
    return this.#line.call(
      "score",
      { tokens: [...tokens], from, firstIsBos, rows, base },
      signal ? { signal } : {},
    );
  }

  inputSums(
    tokens: readonly number[],
    options: { firstIsBos?: boolean; signal?: AbortSignal } = {},
  ): Promise<InputSums[]> {
    const { firstIsBos = false, signal } = options;
    return this.#line.call(
      "inputSums",
      { tokens: [...tokens], firstIsBos },
      signal ? { signal } : {},
    );
  }

  async embed(
    texts: readonly (string | readonly number[])[],
    options: EmbedOptions = {},
  ): Promise<Embedding[]> {
    const { pooling = "mean", normalize = true, addBos, signal } = options;
    const results: Embedding[] = [];
    for (const text of texts) {
      const params = { prompt: toPrompt(text, addBos), pooling, normalize };
      results.push(await this.#line.call("embed", params, signal ? { signal } : {}));
    }
    return results;
  }

  applyTemplate(messages: readonly ChatMessage[], options: TemplateOptions = {}): Promise<string> {
    const all = { addGenerationPrompt: true, ...options };
    return this.#line.call("applyTemplate", { messages: [...messages], options: all });
  }

  async profile({ trace = false, reset = false }: ProfileOptions = {}): Promise<ProfileReport> {
    const [device, ...others] = (await this.#devices()) ?? [];
    // What two devices share is no device's time.
    const only = others.length === 0 ? device : undefined;
    return await this.#line.call("profile", { device: only, trace, reset });
  }

  /** Used by Chat: a generation whose cache belongs to a session. */
  run(prompt: Prompt, options: GenerateOptions): Generation {
    const { signal, ...rest } = options;
    return startGeneration(
      (onEvent, either) =>
        this.#line
          .call("generate", { prompt, options: rest }, { onEvent, signal: either })
          .then((result) => this.#withLimits(result)),
      signal,
    );
  }

  async #withLimits(result: GenerationResult): Promise<GenerationResult> {
    const devices = await this.#devices();
    if (!devices) return result;
    const { timings } = result;
    return { ...result, timings: { ...timings, limits: speedLimits(timings, ...devices) } };
  }

  status(): Promise<EngineStatus> {
    return this.#line.call("status", {});
  }

  dispose(): Promise<void> {
    return this.#line.dispose();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}

class EngineChat implements Chat {
  readonly #model: EngineModel;
  readonly #defaults: GenerateOptions;
  #messages: ChatMessage[];
  #answering = false;
  #disposed = false;

  constructor(model: EngineModel, options: ChatOptions) {
    const { system, messages, ...defaults } = options;
    this.#model = model;
    this.#defaults = defaults;
    this.#messages = messages?.map((message) => ({ ...message })) ?? [];
    if (system !== undefined) this.setSystem(system);
  }

  get messages(): readonly ChatMessage[] {
    return this.#messages;
  }

  send(text: string, options: GenerateOptions = {}): Generation {
    return this.#answer([...this.#messages, { role: "user", content: text }], options);
  }

  undo(): boolean {
    const at = this.#messages.findLastIndex((message) => message.role === "user");
    if (at < 0) return false;
    this.#messages = this.#messages.slice(0, at);
    return true;
  }

  regenerate(options: GenerateOptions = {}): Generation {
    const at = this.#messages.findLastIndex((message) => message.role === "user");
    if (at < 0) throw new UsageError("regenerate(): nothing was asked yet");
    return this.#answer(this.#messages.slice(0, at + 1), options);
  }

  setSystem(text: string): void {
    const rest = this.#messages.filter((message) => message.role !== "system");
    this.#messages = text ? [{ role: "system", content: text }, ...rest] : rest;
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
  }

  #answer(asked: ChatMessage[], options: GenerateOptions): Generation {
    if (this.#disposed) throw new DisposedError("the chat");
    if (this.#answering) return stillAnswering();
    const before = this.#messages;
    this.#messages = asked;
    this.#answering = true;
    const prompt: Prompt = { kind: "messages", messages: [...asked] };
    const generation = this.#model.run(prompt, { ...this.#defaults, ...options });
    const end = (messages: ChatMessage[]): void => {
      this.#answering = false;
      // Only if nobody has rolled the conversation back meanwhile.
      if (this.#messages === asked) this.#messages = messages;
    };
    generation.result.then(
      ({ text, stopReason }) => {
        const unanswered = stopReason === "aborted" && text === "";
        end(unanswered ? before : [...asked, { role: "assistant", content: text }]);
      },
      () => end(before), // the caller sees the error on the generation; what failed was never said
    );
    return generation;
  }
}

/** Before the conversation is touched: a second question would cost the first one its answer. */
function stillAnswering(): Generation {
  const error = new UsageError(
    "this chat is still answering: wait for the answer or abort it before sending again",
  );
  return startGeneration(() => Promise.reject(error), undefined);
}

function toPrompt(prompt: string | readonly number[], addBos: boolean | undefined): Prompt {
  if (typeof prompt !== "string" && !(Symbol.iterator in Object(prompt))) {
    throw new UsageError(`prompt: got ${typeof prompt}, expected text or a list of token ids`);
  }
  return typeof prompt === "string"
    ? { kind: "text", text: prompt, addBos: addBos ?? true }
    : { kind: "tokens", tokens: [...prompt] };
}
