// Runs: generations that belong to the server, not to whoever asked. A run is started with its messages on disk, saved
// while it is written, and finished whether anybody watches or not.
//
// The promise: the person's message is on disk before the model reads it, and of a running answer at most the last second
// is lost when the process dies. When saving fails (the disk is full), generation goes on, the run carries a warning,
// and saving is tried again until it succeeds. One run per session at a time; several answers may be part of it.

import type { GenerationResult } from "../api.ts";
import { AbortedError, LanternError } from "../base/errors.ts";
import { type Asked, askedPath, promptTokens, type RunModel } from "./prompt.ts";
import { type Answer, type KnownLimit, Run } from "./run.ts";
import { type Message, type MessageTimings, type Session, SessionError } from "./session.ts";
import { changeSettings, type SettingsChange, toGenerateOptions } from "./settings.ts";
import { type Begun, newId, type SessionStore } from "./store.ts";
import type { MessageEnd } from "./tree.ts";

export interface RunsOptions {
  /** Milliseconds that only go forward. */
  now?: () => number;
  /** A running answer is saved this often (default 500), so that a second is never lost. */
  saveEveryMs?: number;
  /** How long an ended run can still be followed (default 5 minutes). */
  keepEndedMs?: number;
  /** The sentence that a person may read of an error. */
  describe?: (error: unknown) => string;
}

export interface AskRequest extends Asked {
  /** For this run only. */
  settings?: SettingsChange | undefined;
  /** Answers side by side (default 1). */
  count?: number | undefined;
}

export interface Started extends Begun {
  run: Run;
}

/** Ended runs that can still be followed, at most. */
const maxEnded = 100;

export class Runs {
  readonly #store: SessionStore;
  readonly #now: () => number;
  readonly #saveEveryMs: number;
  readonly #keepEndedMs: number;
  readonly #describe: (error: unknown) => string;
  readonly #runs = new Map<string, Run>();
  /** By session: the run that is under way, or null while one is being prepared. */
  readonly #busy = new Map<string, Run | null>();
  /** Runs with something that is not on disk yet. */
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

  /** Checks everything, saves what was asked, starts. When it throws, nothing was saved and nothing runs. */
  async ask(sessionId: string, model: RunModel, request: AskRequest): Promise<Started> {
    this.#reserve(sessionId);
    try {
      const session = this.#store.session(sessionId);
      const { content, count = 1 } = request;
      checkAnswerable(request);
      const path = askedPath(session.mode, this.#pathFrom(session, request), request);
      const settings = changeSettings(session.settings, request.settings ?? {});
      const asked = content === undefined ? [] : [{ role: "user" as const, content }];
      const tokens = await promptTokens(session.mode, model, settings, [...path, ...asked]);
      this.#checkOpen(); // that took a while
      model.checkRoom(count);
      const begun = this.#store.begin(sessionId, path.at(-1)?.id ?? null, {
        content,
        model: model.name,
        count,
      });
      const run = this.#start(session, model, begun);
      const options = toGenerateOptions(settings);
      const written = run.answers.map((answer, at) => {
        // The same seed would write the same text beside itself.
        const seed = options.seed === undefined ? {} : { seed: options.seed + at };
        return this.#write(run, answer, tokens.length, () =>
          model.generate(tokens, { ...options, ...seed, signal: run.signal }),
        );
      });
      void Promise.all(written).then(() => this.#finish(run));
      return { ...begun, run };
    } finally {
      if (this.#busy.get(sessionId) === null) this.#busy.delete(sessionId);
    }
  }

  /** Saves a message without an answer: a piece of a story, an answer written by hand. */
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
      `there is no run "${id.slice(0, 100)}": it ended a while ago, or before the server was started again. What it wrote is in its session`,
    );
  }

  /** The run that is under way in a session. */
  running(sessionId: string): Run | undefined {
    return this.#busy.get(sessionId) ?? undefined;
  }

  /** Ends all runs, saves what they wrote, takes no more. */
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
    const running = this.#busy.get(sessionId);
    if (running === undefined) return void this.#busy.set(sessionId, null);
    const which = running ? `run "${running.id}" writes an answer` : "an answer is being started";
    throw new SessionError(
      "conflict",
      `session "${sessionId}": ${which}, and a session has one at a time. Wait for its end, or cancel it`,
    );
  }

  #pathFrom(session: Session, { parent }: Asked): Message[] {
    return this.#store.path(session.id, parent === undefined ? session.leaf : parent);
  }

  #checkOpen(): void {
    if (!this.#closed) return;
    throw new SessionError("conflict", "the server is stopping: no answer can be started");
  }

  #start(session: Session, model: RunModel, begun: Begun): Run {
    this.#forgetOld();
    const messageIds = begun.answers.map(({ id }) => id);
    const facts = { id: newId("run"), sessionId: session.id, modelName: model.name, messageIds };
    const run = new Run(facts, this.#now);
    run.limit = this.#limits.get(model.name);
    this.#runs.set(run.id, run);
    this.#busy.set(session.id, run);
    this.#unsaved.add(run);
    this.#saveLater();
    return run;
  }

  /** One answer, from its prompt to its end. Never rejects: what goes wrong is how the answer ended. */
  async #write(
    run: Run,
    answer: Answer,
    promptTokens: number,
    generate: () => ReturnType<RunModel["generate"]>,
  ): Promise<void> {
    try {
      const generation = await generate();
      for await (const event of generation.tokens()) {
        answer.push(event, this.#now());
        if (this.#now() - this.#savedAt >= this.#saveEveryMs) this.#save();
        run.changed();
      }
      const result = await generation.result;
      this.#learn(run, result);
      answer.end = endOf(answer, result);
    } catch (error) {
      const aborted = run.signal.aborted || error instanceof AbortedError;
      answer.end = {
        content: answer.text,
        state: aborted ? "aborted" : "error",
        stopReason: aborted ? "aborted" : null,
        error: aborted ? null : this.#describe(error),
        tokens: { prompt: promptTokens, cached: null, generated: answer.tokens },
        timings: timingsOf(answer, undefined),
      };
    }
    this.#save();
    run.changed();
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

  /** Everything that is not on disk yet, of all runs, in one transaction. */
  #save(): void {
    this.#savedAt = this.#now();
    const answers = [...this.#unsaved].flatMap((run) => run.answers);
    const running = answers.filter(
      ({ end, text, savedLength }) => !end && text.length > savedLength,
    );
    const ended = answers.filter(({ end, endSaved }) => end && !endSaved);
    try {
      if (running.length + ended.length > 0) {
        this.#store.saveAnswers(
          running.map(({ messageId, text }) => ({ id: messageId, content: text })),
          ended.map(({ messageId, end }) => ({ id: messageId, end: end! })),
        );
      }
      for (const answer of running) answer.savedLength = answer.text.length;
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

function checkAnswerable({ role = "user" }: Asked): void {
  if (role === "user") return;
  throw new SessionError(
    "invalid",
    `role: got "${role}" with "generate": true, expected "user". An answer that was written by hand is not answered`,
    "role",
  );
}

function endOf(answer: Answer, result: GenerationResult): MessageEnd {
  const { timings, stopReason } = result;
  return {
    content: answer.text,
    state: stopReason === "aborted" ? "aborted" : "complete",
    stopReason,
    error: null,
    tokens: {
      prompt: timings.promptTokens,
      cached: timings.cachedTokens,
      generated: timings.generatedTokens,
    },
    timings: timingsOf(answer, result),
  };
}

function timingsOf(answer: Answer, result: GenerationResult | undefined): MessageTimings {
  const limit = result?.timings.limits?.generation;
  return {
    msToFirstToken: answer.msToFirstToken,
    tokensPerSecond: engineSpeed(result) ?? answer.tokensPerSecond,
    promptMs: result?.timings.promptMs ?? null,
    generatedMs: result?.timings.generatedMs ?? null,
    percentOfLimit: limit ? limit.fraction * 100 : null,
    boundBy: limit?.resource ?? null,
  };
}

/**
 * By the engine's own clock: where this thread was busy, tokens come to it in heaps, and the time between the first and
 * the last says nothing. null: one token has no speed.
 */
function engineSpeed(result: GenerationResult | undefined): number | null {
  const { generatedTokens = 0, generatedMs = 0 } = result?.timings ?? {};
  return generatedTokens > 1 && generatedMs > 0 ? (generatedTokens * 1000) / generatedMs : null;
}

function describeSimply(error: unknown): string {
  return error instanceof LanternError ? error.message : "the model failed";
}
