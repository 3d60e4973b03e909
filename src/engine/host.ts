// The engine thread's side of the RPC: takes requests from the caller's thread and answers them with one Engine. The
// composition root (src/threads/serve-engine.ts) passes in the function that makes the engine.

import type { Check } from "../base/check.ts";
import { errorToFacts } from "../base/error-facts.ts";
import {
  AbortedError,
  DeviceLostError,
  DeviceMemoryError,
  DisposedError,
  UsageError,
} from "../base/errors.ts";
import type { EnginePort } from "../platform/platform.ts";
import { isBackground } from "./background.ts";
import { computeLogits } from "./compute-logits.ts";
import { computeEmbeddings } from "./embedding.ts";
import type { Engine, LoadWatch } from "./engine.ts";
import { generate, type RunControl } from "./generator.ts";
import { sumInputs } from "./input-sums.ts";
import {
  ABORT_FLAGS,
  ARRIVALS,
  BEATS,
  type EngineEvent,
  type FromEngine,
  type MethodName,
  type Methods,
  type OpenRequest,
  type Prompt,
  type ToEngine,
} from "./protocol.ts";
import { loadFrom, type StatePlaces, saveTo } from "./saved/state-places.ts";
import { score } from "./score.ts";
import {
  answerFormatOf,
  promptTokens,
  renderMessages,
  type TextSide,
  tokenList,
  tokenPieces,
} from "./text-work.ts";

export interface HostEnvironment {
  load(request: OpenRequest, watch: LoadWatch): Promise<Engine>;
  yieldThread(): Promise<void>;
  now(): number;
  /** The last call on a thread whose engine is disposed of. */
  beforeEnd?: (() => void) | undefined;
  /** The locations that saved state is written to and read from. */
  readonly states: StatePlaces;
}

/** Milliseconds for which state is still stored when an engine is disposed of: the rest will be computed again. */
const settleMs = 1000;
/** Milliseconds for which a disposed engine waits for its requests to end. */
const endMs = 400;

interface Running {
  aborted: boolean;
}

type Handler<M extends MethodName> = (
  params: Methods[M]["params"],
  control: RunControl,
  emit: (event: Methods[M]["event"]) => void,
) => Promise<Methods[M]["result"]> | Methods[M]["result"];

/** Serves one model on this thread until it is disposed. */
export function serveEngine(port: EnginePort, environment: HostEnvironment): void {
  const host = new Host(port, environment);
  port.onMessage((message) => host.receive(message as ToEngine));
}

class Host {
  readonly #port: EnginePort;
  readonly #environment: HostEnvironment;
  readonly #running = new Map<number, Running>();
  #engine: Engine | undefined;
  #loadMs = 0;
  #timedRequests = 0;
  #flags: Int32Array | undefined;
  /** Urgent requests that were received: fewer than were sent while one is on its way. */
  #arrivals = 0;
  #isLost = false;
  /** Resolves in the turn of the event loop of the next request. */
  #nextTurn: Promise<void> = Promise.resolve();
  /** The engine's own work that has not begun. */
  readonly #ownWork: (() => Promise<void>)[] = [];
  /** Events that are sent at the end of this piece of work, in one message. */
  #events: EngineEvent[] = [];

  constructor(port: EnginePort, environment: HostEnvironment) {
    this.#port = port;
    this.#environment = environment;
  }

  receive(message: ToEngine): void {
    this.#beat();
    if (message.method === "share") {
      this.#flags = message.flags;
      return;
    }
    if (message.method === "ping") {
      this.#post({ id: 0, kind: "pong" });
      return;
    }
    if (message.method === "abort") {
      const running = this.#running.get(message.id);
      if (running) running.aborted = true;
      this.#engine?.checkWaiting();
      return;
    }
    if (message.isUrgent) this.#arrivals = (this.#arrivals + 1) | 0;
    const running = { aborted: message.aborted };
    this.#running.set(message.id, running);
    void this.#answer(message.id, message.method, message.params, running);
  }

  async #answer<M extends MethodName>(
    id: number,
    method: M,
    params: Methods[M]["params"],
    running: Running,
  ): Promise<void> {
    const flags = this.#flags;
    const beat = () => this.#beat();
    const control: RunControl = {
      // Read between two ops of a batch, where it also gives a sign of life.
      get aborted() {
        beat();
        return running.aborted || (flags && Atomics.load(flags, id % ABORT_FLAGS) === id) || false;
      },
      yieldThread: () => {
        beat();
        return this.#environment.yieldThread();
      },
      now: () => this.#environment.now(),
    };
    try {
      const handler = this.#handlers[method] as Handler<M>;
      const emit = (event: Methods[M]["event"]) => this.#emit({ id, event });
      this.#post({ id, kind: "result", result: await handler(params, control, emit) });
    } catch (error) {
      // Before another request can arrive.
      if (error instanceof DeviceLostError) this.#sayLost(error);
      this.#post({ id, kind: "error", error: errorToFacts(error) });
    } finally {
      this.#running.delete(id);
    }
    if (method === "dispose") this.#port.close();
  }

  #beat(): void {
    if (this.#flags) Atomics.add(this.#flags, BEATS, 1);
  }

  readonly #handlers: { readonly [M in MethodName]: Handler<M> } = {
    open: async (request, control, emit) => {
      if (this.#engine) throw new UsageError("this engine already has a model");
      const started = control.now() - startMs(request);
      const check = async () => {
        await control.yieldThread();
        if (control.aborted) throw new AbortedError("opening the model");
      };
      const progress = (loadedBytes: number, totalBytes: number) =>
        emit({ loadedBytes, totalBytes });
      this.#engine = await this.#environment.load(request, { progress, check });
      this.#engine.onWarning = (warning) => this.#post({ id: 0, kind: "warning", warning });
      this.#engine.foregroundSent = () =>
        this.#flags !== undefined && Atomics.load(this.#flags, ARRIVALS) !== this.#arrivals;
      this.#engine.asAsked = (work) => this.#asAsked(work);
      void this.#engine.lost?.then((error) => this.#sayLost(error));
      this.#loadMs = control.now() - started;
      return this.#engine.info;
    },
    generate: async ({ prompt, options, grammar }, control, emit) => {
      const engine = this.#loaded();
      using _ = this.#timed(engine);
      using arrival = isBackground(options.priority) ? undefined : engine.arrive();
      if (engine.computesApart) await this.#turn();
      const tokens = generationTokens(this.#text(), prompt, control);
      const generated = generate(this.#loaded(), { tokens, options, grammar }, control, emit);
      arrival?.[Symbol.dispose](); // it has arrived there by now
      const result = await generated;
      return { ...result, timings: { loadMs: this.#loadMs, ...result.timings } };
    },
    compileGrammar: async ({ source, program, whole }, control) => {
      const { grammars } = this.#loaded();
      const yieldThread = () => control.yieldThread();
      if (program) return (await grammars.load(source, program, yieldThread)).notes;
      const grammar = whole
        ? grammars.compile(source, yieldThread)
        : grammars.compileLittle(source, yieldThread);
      return (await grammar)?.notes;
    },
    promptTokens: ({ prompt, limit }, control) =>
      tokenList(promptTokens(this.#text(), prompt, checkOf(control)), limit),
    detokenize: ({ ids, special }) => this.#loaded().tokenizer.decode(Array.from(ids), { special }),
    pieces: ({ ids }) => tokenPieces(this.#text(), ids),
    alive: () => undefined,
    settle: async () => {
      await this.#loaded().settled();
      return undefined;
    },
    ownWork: async () => {
      await this.#ownWork.shift()?.();
      return undefined;
    },
    fingerprint: () => this.#loaded().tokenizer.fingerprint,
    logits: async ({ prompt, top, greedy }, control) => {
      const engine = this.#loaded();
      using _ = this.#timed(engine);
      return await computeLogits(
        engine,
        promptTokens(this.#text(), prompt, checkOf(control)),
        { top, greedy },
        control,
      );
    },
    embed: async ({ prompts, pooling, isBackground }, control, emit) => {
      const engine = this.#loaded();
      using _ = this.#timed(engine);
      const check = checkOf(control);
      const texts = prompts.map((prompt) => promptTokens(this.#text(), prompt, check));
      let done = 0;
      const request = { texts, pooling, isBackground };
      const vectors = await computeEmbeddings(engine, request, control, () => emit(++done));
      return vectors.map((vector, i) => ({ vector, tokens: texts[i]!.length }));
    },
    score: async (request, control) => {
      const engine = this.#loaded();
      using _ = this.#timed(engine);
      return await score(engine, request, control);
    },
    inputSums: async (request, control) => await sumInputs(this.#loaded(), request, control),
    answerFormat: () => answerFormatOf(this.#text()),
    applyTemplate: ({ messages, options }, control) =>
      renderMessages(this.#text(), messages, options, checkOf(control)),
    profile: ({ devices, trace, reset }) => {
      const engine = this.#loaded();
      const report = engine.profile(devices, trace);
      if (reset) engine.resetProfile();
      return report;
    },
    status: () => this.#loaded().status(),
    clearCache: async () => {
      await this.#loaded().clearCache();
      return undefined;
    },
    saveState: async ({ tokens, path }, control) => {
      const { saved } = this.#loaded();
      return await saveTo(saved, this.#environment.states, { tokens, path }, control);
    },
    loadState: async ({ from }, control) =>
      await loadFrom(this.#loaded().saved, this.#environment.states, from, control),
    setAdapters: ({ adapters }) => {
      this.#loaded().adapters.setDefault(adapters);
      return undefined;
    },
    forgetState: ({ tokens }) => {
      this.#loaded().forget(tokens);
      return undefined;
    },
    forgetConversation: async ({ id }) => {
      await this.#loaded().forgetConversation(id);
      return undefined;
    },
    dispose: async () => {
      this.#post({ id: 0, kind: "ending" });
      for (const running of this.#running.values()) running.aborted = true;
      const engine = this.#engine;
      engine?.checkWaiting();
      this.#engine = undefined;
      // Node's main thread keeps a port for every thread until the thread that started it reports its end. If this thread ended first, the port
      // would leak (1.3 KB each).
      await engine?.settled(settleMs);
      engine?.dispose();
      // Generations that wait for a batch are told now. With a GPU, a thread must not end before.
      const since = this.#environment.now();
      while (this.#running.size > 1 && this.#environment.now() - since < endMs) {
        await this.#environment.yieldThread();
      }
      await engine?.ended();
      this.#environment.beforeEnd?.();
      return undefined;
    },
  };

  /**
   * One request in each turn of the event loop: requests that arrive together would otherwise be one piece of work, and the device would finish
   * its batch long before the end of it.
   */
  async #turn(): Promise<void> {
    const own = this.#nextTurn;
    this.#nextTurn = own.then(() => this.#environment.yieldThread());
    await own;
  }

  /** See Engine.asAsked. */
  #asAsked(work: () => Promise<void>): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#ownWork.push(async () => {
      const done = work();
      resolve(done);
      await done.catch(() => undefined); // its caller sees the error
    });
    this.#post({ id: 0, kind: "hasWork" });
    return promise;
  }

  #sayLost(error: DeviceLostError): void {
    const outOfMemory = error instanceof DeviceMemoryError;
    if (!this.#isLost) this.#post({ id: 0, kind: "lost", why: error.message, outOfMemory });
    this.#isLost = true;
  }

  /** From here to the end of the last request, all of the engine's time is in its profile. */
  #timed({ laps }: Engine): Disposable {
    if (this.#timedRequests++ === 0) laps?.resume();
    return {
      [Symbol.dispose]: () => {
        if (--this.#timedRequests === 0) laps?.pause();
      },
    };
  }

  #text(): TextSide {
    const { info, tokenizer, template } = this.#loaded();
    return { name: info.name, tokenizer, template };
  }

  #loaded(): Engine {
    if (!this.#engine) throw new DisposedError("the model");
    return this.#engine;
  }

  #post(message: FromEngine): void {
    this.#sendEvents(); // nothing overtakes them
    this.#port.post(message);
  }

  /** All generations of a batch continue in the same turn of the event loop: their events are one message. */
  #emit(event: EngineEvent): void {
    if (this.#events.push(event) === 1) queueMicrotask(() => this.#sendEvents());
  }

  #sendEvents(): void {
    if (this.#events.length === 0) return;
    const events = this.#events;
    this.#events = [];
    this.#port.post({ id: 0, kind: "events", events } satisfies FromEngine);
  }
}

/** The time to start this thread and to load its code. */
export function startMs({ sentAt }: OpenRequest): number {
  return sentAt === undefined ? 0 : Math.max(0, Date.now() - sentAt);
}

function checkOf(control: RunControl): Check {
  return () => {
    if (control.aborted) throw new AbortedError("the request");
  };
}

/** A generation that is aborted before it has tokens ends like any other aborted one, with an empty text. */
function generationTokens(side: TextSide, prompt: Prompt, control: RunControl): number[] {
  try {
    return promptTokens(side, prompt, checkOf(control));
  } catch (error) {
    if (!(error instanceof AbortedError)) throw error;
    return [0];
  }
}
