// Runs: generations that belong to the server, not to the client that started them. A run starts with its messages on
// disk, is saved while it is written, and is finished with or without followers.
//
// Guarantee: the person's message is on disk before the model reads it, and at most the last second of a running
// answer is lost when the process dies. If saving fails (the disk is full), generation continues, the run carries a
// warning, and saving is retried until it succeeds. A session has one run at a time, which may have several answers.

import { AbortedError, LanternError } from "../../src/base/errors.ts";
import type { GenerationResult } from "../../src/index.ts";
import type { Answer } from "./answer.ts";
import { brokenEnd, endOf, joined } from "./answer-end.ts";
import { newId } from "./ids.ts";
import {
  type Asked,
  askedPath,
  type PromptMessage,
  promptTokens,
  type RunModel,
  slides,
} from "./prompt.ts";
import { type KnownLimit, Run } from "./run.ts";
import { type Message, type Session, SessionError } from "./session.ts";
import {
  changeSettings,
  type SessionSettings,
  type SettingsChange,
  toGenerateOptions,
} from "./settings.ts";
import type { Prompt } from "./slide.ts";
import type { Begun, SessionStore } from "./store.ts";

export interface RunsOptions {
  /** A monotonic clock, in milliseconds. */
  now?: () => number;
  /** How often a running answer is saved in ms (default 500), so that at most a second is lost. */
  saveEveryMs?: number;
  /** How long an ended run can still be followed (default 5 minutes). */
  keepEndedMs?: number;
  /** The message that a person reads for an error. */
  describe?: (error: unknown) => string;
}

export interface AskRequest extends Asked {
  /** For this run only. */
  settings?: SettingsChange | undefined;
  /** Number of answers side by side (default 1). */
  count?: number | undefined;
}

export interface Started extends Begun {
  run: Run;
}

/** The input of an answer. */
interface Task {
  session: Session;
  model: RunModel;
  settings: SessionSettings;
  /** The messages above the answer. */
  path: readonly PromptMessage[];
  prompt: Prompt;
}

/** The most ended runs that can still be followed. */
const maxEnded = 100;

export class Runs {
  readonly #store: SessionStore;
  readonly #now: () => number;
  readonly #saveEveryMs: number;
  readonly #keepEndedMs: number;
  readonly #describe: (error: unknown) => string;
  readonly #runs = new Map<string, Run>();
  /** The running run of each session, or null while one is being prepared. */
  readonly #busy = new Map<string, Run | null>();
  /** Sessions that are being deleted. */
  readonly #deleting = new Set<string>();
  /** Runs with text that is not on disk yet. */
  readonly #unsaved = new Set<Run>();
  readonly #limits = new Map<string, KnownLimit>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #savedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(store: SessionStore, options: RunsOptions = {}) {
    this.#store = store;
    this.#now = options.now ?? (() => performance.now());
    this.#saveEveryMs = options.saveEveryMs ?? 500;
    this.#keepEndedMs = options.keepEndedMs ?? 300_000;
    this.#describe = options.describe ?? describeSimply;
  }

  /** Checks the request, saves the message, starts the run. If it throws, nothing was saved and nothing runs. */
  async ask(sessionId: string, model: RunModel, request: AskRequest): Promise<Started> {
    this.#reserve(sessionId);
    try {
      const session = this.#store.session(sessionId);
      const { content, count = 1, message } = request;
      checkAnswerable(request);
      const path: readonly (PromptMessage & { id: string })[] =
        message === undefined
          ? askedPath(session.mode, this.#pathFrom(session, request), request)
          : this.#resumedPath(session, message);
      const settings = changeSettings(session.settings, request.settings ?? {});
      const asked = content === undefined ? [] : [{ role: "user" as const, content }];
      const read = [...path, ...asked];
      const prompt = await promptTokens(session.mode, model, settings, read);
      this.#checkOpen(); // preparing took a while
      model.checkCapacity(count);
      const begun =
        message === undefined
          ? this.#store.begin(sessionId, path.at(-1)?.id ?? null, {
              content,
              model: model.name,
              count,
            })
          : this.#store.resume(sessionId, message, model.name);
      const run = this.#start(session, model, begun, prompt);
      const above = message === undefined ? read : read.slice(0, -1);
      const task: Task = { session, model, settings, path: above, prompt };
      const written = run.answers.map((answer, at) => this.#write(run, answer, at, task));
      void Promise.all(written).then(() => this.#finish(run));
      return { ...begun, run };
    } finally {
      if (this.#busy.get(sessionId) === null) this.#busy.delete(sessionId);
    }
  }

  /** Saves a message without an answer: a part of a story, or an answer written by hand. */
  keep(sessionId: string, request: Asked): Message {
    this.#reserve(sessionId);
    try {
      const session = this.#store.session(sessionId);
      const { content, role = "user" } = request;
      if (content === undefined || request.regenerate) {
        throw new SessionError("invalid", "content: missing. There is nothing to save", "content");
      }
      const path = askedPath(session.mode, this.#pathFrom(session, request), request);
      return this.#store.addMessage(sessionId, path.at(-1)?.id ?? null, { role, content });
    } finally {
      this.#busy.delete(sessionId);
    }
  }

  run(id: string): Run {
    this.#forgetOld();
    const run = this.#runs.get(id);
    if (run) return run;
    throw new SessionError(
      "missing",
      `there is no run "${id.slice(0, 100)}". It ended a while ago, or before the server was restarted; what it wrote is in its session`,
    );
  }

  /** The running run of a session. */
  running(sessionId: string): Run | undefined {
    return this.#busy.get(sessionId) ?? undefined;
  }

  /** Whether a run of that id can be followed here. */
  has(id: string): boolean {
    return this.#runs.has(id);
  }

  /**
   * Deletes a session: its running answer is ended, new requests are refused meanwhile, and its runs can no longer be followed. If
   * the store cannot delete it, it stays.
   */
  async delete(sessionId: string): Promise<void> {
    this.#store.session(sessionId); // throws if there is none
    this.#deleting.add(sessionId);
    try {
      const run = this.running(sessionId);
      run?.cancel();
      await run?.done;
      this.#store.deleteSession(sessionId);
      for (const [id, ended] of this.#runs) {
        if (ended.sessionId !== sessionId) continue;
        this.#runs.delete(id);
        this.#unsaved.delete(ended);
        ended.withdraw();
      }
    } finally {
      this.#deleting.delete(sessionId);
    }
  }

  /** Ends all runs, saves their text, and accepts no more. */
  async close(): Promise<void> {
    this.#closed = true;
    const running = [...this.#busy.values()].filter((run) => run !== null);
    for (const run of running) run.cancel();
    await Promise.all(running.map((run) => run.done));
    clearTimeout(this.#timer);
    this.#save();
    clearTimeout(this.#timer);
  }

  #reserve(sessionId: string): void {
    this.#checkOpen();
    if (this.#deleting.has(sessionId)) {
      throw new SessionError("conflict", `session "${sessionId}": it is being deleted`);
    }
    const running = this.#busy.get(sessionId);
    if (running === undefined) return void this.#busy.set(sessionId, null);
    const which = running
      ? `run "${running.id}" is writing an answer`
      : "an answer is being started";
    throw new SessionError(
      "conflict",
      `session "${sessionId}": ${which}, and a session can have one at a time. Wait until it is complete, or cancel it`,
    );
  }

  #pathFrom(session: Session, { parent }: Asked): Message[] {
    return this.#store.path(session.id, parent === undefined ? session.leaf : parent);
  }

  /** The path down to an answer that is to be continued. */
  #resumedPath(session: Session, id: string): (PromptMessage & { id: string })[] {
    const refuse = (why: string): never => {
      throw new SessionError("invalid", `message: "${id}" ${why}`, "message");
    };
    const { role, content, reasoning, calls, ...ended } = this.#store.message(session.id, id);
    if (role !== "assistant") refuse("is not an answer, and only an answer can be continued");
    if (ended.state === "complete" && ["end", "stop"].includes(ended.stopReason ?? "")) {
      refuse('is complete: the model has ended it. Ask for another answer with "regenerate"');
    }
    const raw = this.#store.rawText(id) ?? content;
    const isPlain = reasoning === null && calls.length === 0;
    if (raw === content && !isPlain) {
      refuse(
        'was imported, without what the model wrote. Ask for another answer with "regenerate"',
      );
    }
    if (calls.some(({ state }) => state !== "waiting")) refuse("has results of its calls");
    if (raw === "") refuse('has no text to continue. Ask for another answer with "regenerate"');
    if (this.#store.messages(session.id).some(({ parent }) => parent === id)) {
      refuse("has messages below it, and only the last one of a branch can be continued");
    }
    return [...this.#store.path(session.id, id).slice(0, -1), { id, role, content: raw }];
  }

  #checkOpen(): void {
    if (!this.#closed) return;
    throw new SessionError("conflict", "the server is stopping, so no answer can be started");
  }

  #start(session: Session, model: RunModel, begun: Begun, { reader }: Prompt): Run {
    this.#forgetOld();
    const answers = begun.answers.map(({ id, content, tokens, timings }) => ({
      ...{ id, content, tokens, timings },
      raw: this.#store.rawText(id),
    }));
    const own = { id: newId("run"), sessionId: session.id, modelName: model.name };
    const run = new Run({ ...own, answers, reader }, this.#now);
    run.limit = this.#limits.get(model.name);
    this.#runs.set(run.id, run);
    this.#busy.set(session.id, run);
    this.#unsaved.add(run);
    this.#saveLater();
    return run;
  }

  /** Writes one answer, from its prompt to its end. Never rejects: a failure is recorded as the answer's end. */
  async #write(run: Run, answer: Answer, at: number, task: Task): Promise<void> {
    let { prompt } = task;
    const { session, model, settings, path } = task;
    const options = toGenerateOptions(settings);
    // With the same seed, all answers would be the same text.
    const seed = options.seed === undefined ? {} : { seed: options.seed + at };
    let result: GenerationResult | undefined;
    try {
      for (;;) {
        const limit = left(settings, result);
        const wanted = { ...options, ...seed, ...limit, ...prompt.options, signal: run.signal };
        result = joined(
          result,
          await this.#read(run, answer, model.generate(prompt.tokens, wanted)),
        );
        this.#learn(run, result);
        if (result.stopReason !== "context" || !slides(session.mode)) break;
        const { maxTokens } = left(settings, result);
        if (maxTokens === undefined || maxTokens < 1) break;
        // The text outgrew the context in the middle of an answer.
        const read = [...path, { role: "assistant" as const, content: answer.text }];
        prompt = await promptTokens(session.mode, model, { ...settings, maxTokens }, read);
      }
      answer.close();
      answer.end = endOf(answer, result, prompt.dropped);
    } catch (error) {
      answer.close();
      const aborted = run.signal.aborted || error instanceof AbortedError;
      answer.end = brokenEnd(answer, prompt, aborted ? null : this.#describe(error));
    }
    answer.isEmpty =
      slides(session.mode) && answer.text.trim() === "" && answer.end.stopReason !== "length";
    this.#save();
    run.changed();
  }

  async #read(
    run: Run,
    answer: Answer,
    begun: ReturnType<RunModel["generate"]>,
  ): Promise<GenerationResult> {
    const generation = await begun;
    for await (const event of generation.tokens()) {
      answer.push(event, this.#now());
      if (this.#now() - this.#savedAt >= this.#saveEveryMs) this.#save();
      run.changed();
    }
    return await generation.result;
  }

  #learn(run: Run, { timings }: GenerationResult): void {
    const found = timings.limits?.generation;
    if (!found) return;
    const { tokensPerSecond, resource } = found;
    this.#limits.set(run.modelName, { tokensPerSecond, boundBy: resource });
  }

  #finish(run: Run): void {
    if (this.#busy.get(run.sessionId) === run) this.#busy.delete(run.sessionId);
    run.finish();
  }

  // --- saving

  #saveLater(): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#save();
    }, this.#saveEveryMs);
  }

  /** Saves all text that is not on disk yet, of all runs, in one transaction. */
  #save(): void {
    this.#savedAt = this.#now();
    const answers = [...this.#unsaved].flatMap((run) => run.answers);
    const running = answers.filter(({ end, length, savedLength }) => !end && length > savedLength);
    const ended = answers.filter(({ end, endSaved }) => end && !endSaved);
    try {
      if (running.length + ended.length > 0) {
        this.#store.saveAnswers(
          running.map(({ messageId, saved }) => ({ id: messageId, text: saved })),
          ended
            .filter(({ isEmpty }) => !isEmpty)
            .map(({ messageId, end }) => ({ id: messageId, end: end! })),
          ended.filter(({ isEmpty }) => isEmpty).map(({ messageId }) => messageId),
        );
      }
      for (const answer of running) answer.savedLength = answer.length;
      for (const answer of ended) answer.endSaved = true;
      this.#warn(null);
    } catch (error) {
      this.#warn(`the answer is not saved: ${this.#describe(error)}`);
    }
    for (const run of this.#unsaved) {
      if (run.answers.every(({ endSaved }) => endSaved)) this.#unsaved.delete(run);
    }
    if (this.#unsaved.size > 0) this.#saveLater();
  }

  #warn(text: string | null): void {
    for (const run of this.#unsaved) run.warning = text;
  }

  #forgetOld(): void {
    const ended = [...this.#runs.values()].filter(({ endedAt }) => endedAt !== undefined);
    const oldest = this.#now() - this.#keepEndedMs;
    for (const [at, run] of ended.entries()) {
      const tooMany = ended.length - at > maxEnded;
      if (tooMany || run.endedAt! < oldest) this.#runs.delete(run.id);
    }
  }
}

/** Tokens of an answer that follows a JSON schema, unless the settings say how many: a weak model may never end a string or a list. */
const schemaTokens = 2048;

/** The number of further tokens that the answer may have, if that is limited. */
function left(
  { maxTokens, schema }: SessionSettings,
  result: GenerationResult | undefined,
): { maxTokens?: number } {
  const most = maxTokens ?? (schema === undefined ? undefined : schemaTokens);
  if (most === undefined) return {};
  return { maxTokens: most - (result?.timings.generatedTokens ?? 0) };
}

function checkAnswerable({ role = "user", message, ...others }: AskRequest): void {
  const { content, regenerate, parent, count = 1 } = others;
  const alone = content === undefined && parent === undefined && !regenerate && count === 1;
  if (message !== undefined && !alone) {
    throw new SessionError(
      "invalid",
      'message: continues that answer. Leave out "content", "parent", "regenerate" and "n"',
      "message",
    );
  }
  if (role === "user") return;
  throw new SessionError(
    "invalid",
    `role: got "${role}" with "generate": true, expected "user". An answer that was written by hand cannot be answered`,
    "role",
  );
}

function describeSimply(error: unknown): string {
  return error instanceof LanternError ? error.message : "the model failed";
}
