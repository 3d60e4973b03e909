// The engine: one loaded model with its backend, tokenizer and KV cache. It runs on its own thread (host.ts), never on
// the caller's.
//
// load() makes it from a model file. generator.ts drives many generations token by token: state/ decides when one may
// start and which tokens are already computed, scheduler.ts puts the tokens of all of them into one batch.

import type {
  BackendInfo,
  ComputedAgain,
  EngineStatus,
  ExpertReads,
  HeldWeights,
  MemoryHeld,
  ModelInfo,
  ProfileReport,
  RestoredTokens,
  SpeculateOptions,
} from "../api/api.ts";
import type { Device } from "../api/rates.ts";
import type { Backend, KvCacheOptions, Widened } from "../backends/backend.ts";
import { type DeviceLostError, DisposedError, ModelError, UsageError } from "../base/errors.ts";
import type { ChatTemplate } from "../chat/template.ts";
import type { KvDType } from "../dtypes/kv-types.ts";
import { adaptGraph } from "../graph/adapt.ts";
import type { BatchShape } from "../graph/batch.ts";
import { Batch, KV_BLOCK_TOKENS } from "../graph/batch.ts";
import { type Graph, isBidirectional, recurrentStates } from "../graph/graph.ts";
import type { Plan, PlanLimits } from "../graph/plan.ts";
import { predictGraph } from "../graph/predict.ts";
import type { PhaseModel } from "../limits/phase.ts";
import { buildModel } from "../models/build.ts";
import type { Laps } from "../profile/laps.ts";
import { busyMs, profileReport } from "../profile/report.ts";
import { chromeTrace } from "../profile/trace.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { Adapters } from "./adapters.ts";
import type { BackgroundPlace } from "./background.ts";
import { BatchLine } from "./batch-line.ts";
import { computedAgain } from "./computed-again.ts";
import { type CorePlace, CoreTurn } from "./core-turns.ts";
import { diskInfo } from "./disk-info.ts";
import type { EngineParts } from "./engine-parts.ts";
import { GrammarTurns } from "./grammar-turns.ts";
import { Grammars } from "./grammars.ts";
import type { AdvanceOptions } from "./job.ts";
import { kvRangeError } from "./kv-range.ts";
import { warningsOf } from "./load-warnings.ts";
import { BATCH_LIMITS, checkKvType } from "./memory.ts";
import { describeModel } from "./model-info.ts";
import { adapterInfo, openAdapters } from "./open-adapters.ts";
import { predictorsOf } from "./open-predictors.ts";
import {
  affordableTiers,
  type CapacityOptions,
  contextFor,
  planCapacity,
} from "./plan-capacity.ts";
import { checkRouters } from "./router-check.ts";
import { SavedStates } from "./saved/saved-states.ts";
import { Scheduler } from "./scheduler.ts";
import { shortNotes } from "./short-notes.ts";
import { BatchCosts } from "./speculate/costs.ts";
import type { DrafterKind } from "./speculate/drafter.ts";
import { NgramKind } from "./speculate/ngram.ts";
import { describeSpeculation, isWanted, speculatesByDefault } from "./speculate/options.ts";
import { NO_ADAPTERS } from "./state/adapter-use.ts";
import type { BlockPool } from "./state/block-pool.ts";
import { type BegunPrompt, ComingPrompts, type WaitingPrompt } from "./state/coming-prompts.ts";
import { type KeyRotations, keyRotations, shiftRefusal } from "./state/key-rotations.ts";
import { KnownTexts } from "./state/known-texts.ts";
import type { RunningSequence, SequenceRequest } from "./state/running-sequence.ts";
import type { Sequence } from "./state/sequence.ts";
import { FIRST_TOKENS, StateCapacity } from "./state/state-capacity.ts";
import { stateKinds } from "./state/state-kinds.ts";
import { noShift, TokenMover } from "./state/token-mover.ts";
import { cacheStatus, newCounts } from "./tiers/cache-counts.ts";
import { openTiers } from "./tiers/open-tiers.ts";
import { isPrivate, NOBODY, ownersOf } from "./tiers/owners.ts";
import type { StateTiers } from "./tiers/state-tiers.ts";
import { type LoadWatch, readerOf, uploadWeights } from "./upload-weights.ts";

export interface EngineOptions extends CapacityOptions {
  /** Neurons that are zero were asked to be left out. Default: false. */
  wantsZeros?: boolean;
  contextSize: number | undefined;
  /** Measures the read speed of the model's files, in bytes/s; only asked where weights stay on disk. */
  diskRate?: (() => Promise<number | undefined>) | undefined;
  /** Prompt tokens in a batch while others decode; undefined: a default. */
  promptChunk?: ((graph: Graph, kvType: KvDType) => number | undefined) | undefined;
  /** The expected time of batches, measured before; undefined: not known. */
  batchShape?: ((graph: Graph) => BatchShape | undefined) | undefined;
  /** Records where the engine's time goes; undefined: not recorded. */
  laps?: Laps | undefined;
  /** Its entry among the engines of this process that share cores; undefined: it shares none. */
  cores?: CorePlace | undefined;
  /** Requests that were only partly honoured before: part of ModelInfo.warnings. */
  warnings?: readonly string[] | undefined;
  /** ModelInfo.hints. */
  hints?: readonly string[] | undefined;
  /** For ModelInfo.heldAs. */
  heldAs?: HeldWeights | undefined;
  /** Whether tokens are drafted. Default: where that cannot change a text. */
  speculate?: boolean | SpeculateOptions | undefined;
  /** The layer that predicts further tokens is loaded as well. Default: false. */
  usesNext?: boolean | undefined;
  /** Whether a GPU computes made-up batches first. Default: true. */
  warmup?: boolean | undefined;
  /** Called when the weights are there, before anything else is computed. */
  loaded?: ((plan: Plan) => Promise<void>) | undefined;
  /** Names of the weights, for saved state. Default: none. */
  stateFacts?: (() => Promise<readonly string[]>) | undefined;
  /** For ModelInfo.fingerprint; asked when the weights are there. Default: it has none. */
  fingerprint?: (() => Promise<string>) | undefined;
}

export type { AdvanceOptions, ReadBest, ReadOutput } from "./job.ts";
export type { RunningSequence } from "./state/running-sequence.ts";
export type { LoadWatch } from "./upload-weights.ts";

/** Shorter prompts are not worth sharing before their generation has ended. */
const SHARED_PROMPT_TOKENS: number = 2 * KV_BLOCK_TOKENS;

/** The most time that a request takes from its arrival until it asks for a batch, if it waits for nothing. */
const FRESH_MS = 10;

/** A prompt that is about to be computed. */
interface PromptBeginning extends Omit<WaitingPrompt, "known" | "usable"> {
  /** false: all tokens are computed. */
  readonly reuses: boolean;
}

function wholeBlocks(tokens: number): number {
  return Math.floor(tokens / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS;
}

export class Engine {
  readonly info: ModelInfo;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate | undefined;
  readonly vocabSize: number;
  /** The stopwatch of a profile; undefined if profiling is off. */
  readonly laps: Laps | undefined;
  readonly graph: Graph;
  readonly kvType: KvDType;
  /** The graph's parts: two if two backends compute it. */
  readonly parts: readonly PhaseModel[];
  /** Tokens attend to later ones: a text is computed in one batch, and nothing continues it. */
  readonly isBidirectional: boolean;
  /** Whether this thread does other work while a batch is computed (Backend.computesApart). */
  readonly computesApart: boolean;
  /** See Backend.mostBest. */
  readonly mostBest: number;
  /** See Backend.readsAdjusted. */
  readonly readsAdjusted: boolean;
  readonly #backend: Backend;
  readonly #room: StateCapacity;
  readonly #scheduler: Scheduler;
  readonly #tiers: StateTiers | undefined;
  readonly #known = new KnownTexts();
  readonly #counts = newCounts();
  /** Compiled grammars of the tokenizer. */
  readonly grammars: Grammars;
  /** Whose mask is worked on. */
  readonly grammarTurns: GrammarTurns = new GrammarTurns();
  /** Which adapters requests use. */
  adapters: Adapters = new Adapters([]);
  /** State of sequences as files. */
  readonly saved: SavedStates;
  /** The drafters, of which the one that pays most is used, the first of equals; none: nothing is drafted. */
  drafters: readonly DrafterKind[];
  /** The options of generations that have none. */
  readonly speculate: boolean | SpeculateOptions;
  /** State of tokens at other positions. */
  readonly mover: TokenMover;
  /** The times of batches: they decide how many tokens are drafted. */
  readonly costs: BatchCosts;
  /** Called with warnings that appear only while it computes. */
  onWarning: ((warning: string) => void) | undefined;
  /** Whether a foreground request was sent that has not been received. */
  foregroundSent: () => boolean = () => false;
  /** Does work without a request (idle work) while something keeps the process alive. Default: at once. */
  asAsked: (work: () => Promise<void>) => Promise<void> = (work) => work();
  /** Foreground work that was received and asks for no batches yet. */
  #arriving = 0;
  /** When the last of it was received. */
  #arrivedAt = -Infinity;
  readonly #isRecurrent: boolean;
  /** Prompts that are being computed, for later prompts with the same beginning. */
  readonly #comingPrompts = new ComingPrompts();
  /** The number of times that widen() has changed something: state from before may hold non-finite values. */
  widenings = 0;
  #isWidened = false;
  #widening: Promise<void> = Promise.resolve();
  #disposed = false;

  private constructor(
    parts: EngineParts,
    options: EngineOptions,
    info: ModelInfo,
    plan: Plan,
    kv: KvCacheOptions,
    rotations: KeyRotations | string,
    /** The graph without adapters: the facts that state is named by. */
    model: Graph,
  ) {
    this.info = info;
    this.laps = options.laps;
    this.graph = plan.graph;
    this.#isRecurrent = recurrentStates(plan.graph).length > 0;
    this.isBidirectional = isBidirectional(plan.graph);
    this.kvType = options.kvType;
    this.parts = partsOf(this, parts.backend);
    this.tokenizer = parts.tokenizer;
    this.grammars = new Grammars(parts.tokenizer);
    this.template = parts.template;
    this.vocabSize = info.vocabSize;
    this.speculate = options.speculate ?? speculatesByDefault(parts.backend);
    this.drafters = info.generates ? [new NgramKind()] : [];
    this.#backend = parts.backend;
    this.computesApart = parts.backend.computesApart ?? false;
    this.mostBest = parts.backend.mostBest ?? 0;
    this.readsAdjusted = parts.backend.readsAdjusted ?? false;
    this.#room = new StateCapacity({
      backend: parts.backend,
      contextSize: info.contextSize,
      kinds: stateKinds(plan.graph, plan.limits),
      kv,
      asAsked: (work) => this.asAsked(work),
    });
    this.costs = new BatchCosts(options.batchShape?.(plan.graph));
    this.#scheduler = new Scheduler({
      backend: parts.backend,
      batch: new Batch(plan.limits),
      promptChunk: this.isBidirectional
        ? plan.limits.maxTokens
        : Math.min(
            options.promptChunk?.(plan.graph, options.kvType) ?? defaultChunk(plan.limits),
            plan.limits.maxTokens,
          ),
      tokenTile: parts.backend.tokenTile ?? 1,
      makeRoom: (sequence, count) => this.#room.makeRoom(sequence, count),
      onBatch: () => {
        this.grammarTurns.afterBatch();
        this.#checkWidened();
        this.#checkKvRange();
      },
      laps: options.laps,
      costs: this.costs,
      sharedCosts: new BatchLine(),
      turn: options.cores && new CoreTurn(options.cores, threadsOf(info.backend)),
      foregroundComes: () => this.#foregroundComes(),
      promptsCome: () => this.#promptsCome(),
    });
    const { kvType } = this;
    const { contextSize } = info;
    const batchTokens = plan.limits.maxTokens;
    const room = this.#room;
    const { backend } = parts;
    const tiered = { backend, graph: model, kvType, room, contextSize, batchTokens };
    const say = (sentence: string) => this.onWarning?.(sentence);
    this.#tiers = options.tiers && openTiers(tiered, options.tiers, say, this.#counts);
    this.#room.tiers = this.#tiers;
    this.mover = new TokenMover({ ...tiered, rotations });
    this.saved = new SavedStates({
      ...tiered,
      info,
      isBidirectional: this.isBidirectional,
      stateFacts: options.stateFacts ?? (async () => []),
      begin: (request) => this.#begin(request),
      adapters: () => this.adapters.ofSavedState(),
      keep: (sequence) => this.#keep(sequence, false),
      mark: (sequence) => this.#tiers?.mark(sequence),
      say,
    });
  }

  static async load(parts: EngineParts, options: EngineOptions, watch: LoadWatch): Promise<Engine> {
    const usual = buildModel(parts, options.contextSize, options.usesNext);
    const { graph: shape, config: trained } = usual;
    const contextSize = contextFor(parts, options, shape, trained, options.contextSize);
    // Some models compute positions in another way for a long context.
    const isOther = contextSize !== usual.config.context;
    const built = isOther ? buildModel(parts, contextSize, options.usesNext) : usual;
    const { config, graph: model } = built;
    const { pairs, adapters, adapterWarnings } = openAdapters(parts, model);
    const graph = adaptGraph(predictGraph(model, predictorsOf(parts, model)), pairs);
    const warnings = [...built.warnings, ...adapterWarnings];
    checkSupport(parts.backend, graph);
    checkKvType(options.kvType, graph);
    const { plan, kv } = planCapacity(parts, options, graph, contextSize);
    const { tiers, tierWarnings } = affordableTiers(options, parts.backend.measure(plan, kv));
    await checkRouters(graph, readerOf(parts), () => watch.check());
    // Before anything else reads from the disk.
    const isOnDisk = (parts.backend.measure(plan, kv).diskBytes ?? 0) > 0;
    const bytesPerSecond = isOnDisk ? await options.diskRate?.() : undefined;
    await parts.backend.prepare(plan, kv);
    const disk = diskInfo(parts.backend, graph, bytesPerSecond);
    options.laps?.lap("load", "prepare");
    const { tokenizer, template } = parts;
    const { heldAs } = options;
    options.laps?.lap("load", "open");
    await uploadWeights(parts, graph, watch, options.laps);
    options.laps?.lap("load", "weights");
    await options.loaded?.(plan);
    const rotations = shiftRefusal(model) ?? (await keyRotations(model, readerOf(parts)));
    const refusal = noShift(rotations, parts.backend);
    const fingerprint = await options.fingerprint?.();
    const info: ModelInfo = {
      ...describeModel(
        { ...parts, tokenizer, template },
        config,
        { ...plan, graph: model },
        contextSize,
        kv,
        heldAs,
      ),
      ...(adapters.length > 0 && { adapters: adapters.map(adapterInfo) }),
      ...(heldAs && { heldAs }),
      ...(fingerprint !== undefined && { fingerprint }),
      ...(disk && { disk }),
      ...(refusal && { noContextShift: refusal }),
      ...(graph.outputs.logits && {
        speculation: describeSpeculation(parts.backend, options.speculate),
      }),
      ...(options.hints?.length && { hints: [...options.hints] }),
      warnings: [
        ...warningsOf(config, options, plan.graph),
        ...warnings,
        ...tierWarnings,
        ...(parts.backend.warnings?.() ?? []),
      ],
    };
    const made = new Engine(parts, { ...options, tiers }, info, plan, kv, rotations, model);
    made.adapters = new Adapters(adapters);
    await made.#room.holdFirst();
    if (parts.backend.growKv) info.firstStateBytes = made.#room.bytes.held;
    // The largest batch in any case: it takes memory that a GPU's driver gives when it is first computed.
    if (parts.backend.warmUp) {
      await parts.backend.warmUp(contextSize, !(options.warmup ?? true));
      info.backend.notes = shortNotes(parts.backend.explain());
    }
    return made;
  }

  /** Opens a sequence as soon as there is room for it; close() gives it back. */
  async open(request: SequenceRequest): Promise<RunningSequence> {
    using _ = request.background ? undefined : this.arrive();
    const running = await this.#begin(request);
    this.#scheduler.join(running.background);
    // Lines of a batch often begin alike: the next one finds what this one took out of the prefix cache.
    if (running.background) this.share(running);
    return running;
  }

  /**
   * A prompt is about to be computed: others may wait for it until the end of the result's scope, and it waits for others that begin
   * like it. `reuses`: see SequenceRequest.
   */
  async beginPrompt({
    tokens,
    adapters,
    isBackground,
    reuses,
    isAborted,
  }: PromptBeginning): Promise<BegunPrompt> {
    const coming = this.#comingPrompts;
    if (!reuses) return coming.begin(tokens, adapters, isBackground);
    return await coming.beginAfterOthers({
      ...{ tokens, adapters, isBackground, isAborted },
      known: () => this.#room.prefixes.known(tokens, adapters),
      // Recurrent state goes back to checkpoints only.
      usable: (shared) => (this.#isRecurrent ? wholeBlocks(shared) : shared),
    });
  }

  /** Foreground work is prepared, until the end of the result's scope: no batch of background tokens alone starts meanwhile. */
  arrive(): Disposable {
    this.#arriving++;
    this.#arrivedAt = performance.now();
    let isArriving = true;
    return {
      [Symbol.dispose]: () => {
        if (!isArriving) return;
        isArriving = false;
        this.#arriving--;
        this.#scheduler.wake();
      },
    };
  }

  /** A waiting generation needs others to continue. */
  #foregroundComes(): boolean {
    return this.foregroundSent() || this.#arriving > this.#room.admission.foregroundWaiting;
  }

  /** A request that was received a while ago waits for something else: a grammar, or memory. */
  #promptsCome(): boolean {
    const isFresh = performance.now() - this.#arrivedAt < FRESH_MS;
    return this.foregroundSent() || (isFresh && this.#foregroundComes());
  }

  async #begin(request: SequenceRequest): Promise<RunningSequence> {
    this.#alive();
    const { tokens, mayAdd, isAborted, isStored = false, reuses = true } = request;
    const { reusePieces = 0, adapters = this.adapters.use(undefined, tokens) } = request;
    const most = Math.min(tokens.length + mayAdd, this.info.contextSize);
    const background: BackgroundPlace | undefined = request.background && {
      mayYield: request.background === "yields",
      mustYield: false,
    };
    const likely = Math.min(tokens.length + Math.min(mayAdd, FIRST_TOKENS), most);
    const entering = this.#room.enter(this.#room.demand(most), isAborted, background, likely);
    this.#scheduler.wake(); // a sequence may have to yield
    const promised = await entering;
    const keepsMoved = reusePieces > 0;
    const known =
      this.isBidirectional || !reuses
        ? undefined
        : this.#room.prefixes.take(tokens, keepsMoved, adapters);
    const sequence = known ?? this.#room.newSequence(adapters);
    sequence.own(request.owner ?? NOBODY);
    this.#room.began(promised, sequence);
    try {
      const restored = isStored && reuses ? await this.#extend(sequence, tokens) : undefined;
      const movedTokens = keepsMoved ? await this.mover.take(sequence, tokens, reusePieces) : 0;
      return { sequence, promised, restored, isStored, movedTokens, keepsMoved, background };
    } catch (error) {
      sequence.release();
      this.#room.leave(promised);
      throw error;
    }
  }

  /** Goes on to the longest prefix that is known outside of the backend. */
  async #extend(
    sequence: Sequence,
    tokens: readonly number[],
  ): Promise<RestoredTokens | undefined> {
    if (!this.#tiers) return undefined;
    sequence.restore(sequence.restorable(sequence.commonPrefix(tokens)));
    const makeRoom = (length: number) => this.#room.makeRoomToExtend(sequence, length);
    const { ram, disk, ms } = await this.#tiers.extend(sequence, tokens, makeRoom);
    return ram + disk > 0 ? { ramTokens: ram, diskTokens: disk, ms } : undefined;
  }

  /** Waits for something other than a batch: no batch waits for this sequence meanwhile. */
  async apart({ background }: RunningSequence, work: Promise<void> | undefined): Promise<void> {
    if (work === undefined) return;
    this.#scheduler.leave(background);
    try {
      await work;
    } finally {
      this.#scheduler.join(background);
    }
  }

  /** Drops `count` tokens after the first `keep`; later tokens move forward, and the sequence is no longer exact. */
  async dropTokens(
    { sequence }: RunningSequence,
    { keep, count }: { keep: number; count: number },
    yieldThread: () => Promise<void>,
  ): Promise<void> {
    this.#alive();
    await this.mover.drop(sequence, keep, count, yieldThread);
  }

  /** Drops the state of these tokens from the KV cache, as far as no other text needs it; returns the number of sequences. */
  forget(tokens: readonly number[]): number {
    this.#alive();
    return this.#room.prefixes.drop(tokens);
  }

  /** Ends a sequence. Its state stays in the prefix cache until the room is needed. */
  close({ sequence, promised, isStored, keepsMoved = false, background }: RunningSequence): void {
    if (this.#disposed) return;
    if (isStored && isPlain(sequence)) {
      this.#tiers?.mark(sequence);
      if (sequence.adapters === NO_ADAPTERS) this.#known.note(sequence);
    }
    this.#keep(sequence, keepsMoved);
    this.#scheduler.leave(background);
    this.#room.leave(promised);
  }

  /** Counts where the state of a prompt came from; says why it is computed if it was known. */
  async countPrompt(
    { restored, isStored, sequence }: RunningSequence,
    tokens: readonly number[],
    cached: number,
  ): Promise<ComputedAgain | undefined> {
    const counts = this.#counts;
    const { ramTokens = 0, diskTokens = 0 } = restored ?? {};
    counts.tokens.ram += ramTokens;
    counts.tokens.disk += diskTokens;
    counts.tokens.kv += cached - ramTokens - diskTokens;
    counts.tokens.computed += tokens.length - cached;
    // Earlier texts are remembered where they were computed without adapters.
    if (!isStored || sequence.adapters !== NO_ADAPTERS || isPrivate(sequence.owner))
      return undefined;
    const again = await computedAgain({
      tokens,
      cached,
      known: this.#known,
      tiers: this.#tiers,
      tokenizer: this.tokenizer,
    });
    if (again) {
      counts.computedAgain[again.reason] = (counts.computedAgain[again.reason] ?? 0) + again.tokens;
    }
    return again;
  }

  /** Forgets a conversation without running texts: its state and all copies of it, except state that other conversations share. */
  async forgetConversation(id: string): Promise<void> {
    this.#alive();
    const owners = ownersOf(id);
    this.#room.prefixes.forget(owners);
    this.#known.forget(owners);
    await this.#tiers?.forget(owners);
    for (const kind of this.drafters) await kind.forgetConversation?.(id);
  }

  #keep(sequence: Sequence, keepsMoved: boolean): void {
    if (this.#disposed) return;
    // If tokens attend to later ones, no other text can begin with this state.
    if (this.isBidirectional) {
      sequence.release();
      return;
    }
    if (!sequence.isExact && !keepsMoved) {
      sequence.restore(sequence.restorable(sequence.exactTokens));
    }
    this.#room.prefixes.keep(sequence);
  }

  /** After prefill: other prompts that start the same way can reuse its state while it still decodes. */
  share({ sequence, isStored }: RunningSequence, isAwaited: boolean = false): void {
    if (isStored && isPlain(sequence)) this.#tiers?.mark(sequence);
    if (!sequence.isExact) return;
    // A partial block is copied when either sequence continues: so it is shared only if a prompt waits for it.
    const whole = isAwaited ? sequence.length : wholeBlocks(sequence.length);
    const shared = sequence.restorable(whole);
    if (shared === 0 || (shared < SHARED_PROMPT_TOKENS && !isAwaited)) return;
    const copy = sequence.fork();
    copy.restore(shared);
    this.#room.prefixes.keep(copy);
  }

  /** A request that waits for room may have been aborted. */
  checkWaiting(): void {
    this.#room.admission.check();
    this.#comingPrompts.check();
  }

  /** See Scheduler.advance(). */
  async advance(
    { sequence, isStored, background }: RunningSequence,
    tokens: ArrayLike<number>,
    from: number,
    options: AdvanceOptions,
  ): Promise<number> {
    this.#alive();
    if (this.isBidirectional && sequence.length > 0) {
      throw new Error("a text whose tokens attend in both directions cannot be continued");
    }
    const tiers = this.#tiers;
    const isTimed = tiers !== undefined && options.phase !== "generation";
    const since = isTimed ? tiers.now() : 0;
    const taken = await this.#scheduler.advance(sequence, tokens, from, options, background);
    if (isTimed) tiers.computed(taken, since);
    // Drafted tokens may be undone: settle() notes the accepted ones.
    if (isStored && isPlain(sequence) && !options.drafted) tiers?.note(sequence);
    if (from + taken < tokens.length) await tiers?.turn();
    return taken;
  }

  /**
   * Ends the verification of drafted tokens: tokens after `length` are undone. Returns the length of the sequence, which is shorter
   * if a state cannot go back to `length`.
   */
  settle({ sequence, isStored }: RunningSequence, length: number): number {
    if (this.#disposed) return length;
    if (length === sequence.length) sequence.letGo();
    else sequence.restore(sequence.restorable(length));
    if (isStored && isPlain(sequence)) this.#tiers?.note(sequence);
    return sequence.length;
  }

  /** Tokens of other generations in a batch, as far as that is known before it is filled. */
  neighbours({ background }: RunningSequence): number {
    return this.#scheduler.neighbours(background);
  }

  /** Batches of more tokens may give a token other bits than a batch of its own. */
  get sameBitsTokens(): number {
    return this.#backend.sameBitsTokens ?? Infinity;
  }

  /** Adds a drafter; it is disposed of with the engine. */
  addDrafter(kind: DrafterKind): void {
    this.drafters = [...this.drafters, kind];
    const { speculation } = this.info;
    if (!speculation) return;
    if (isWanted(kind.name, this.speculate)) speculation.drafters.push(kind.name);
    if (kind.note) speculation.text += `; ${kind.note}`;
  }

  /** Whether its threads leave the cores at once after a batch: another model computes there. */
  rest(isOn: boolean): void {
    if (!this.#disposed) this.#backend.rest?.(isOn);
  }

  /** The reads of experts on demand so far; undefined: experts are not read on demand. */
  get expertReads(): ExpertReads | undefined {
    return this.#backend.expertReads?.();
  }

  status(): EngineStatus {
    const experts = this.expertReads;
    const lookahead = this.#backend.lookahead?.();
    const { kvPools, pools, prefixes, admission, bytes } = this.#room;
    const sum = (count: (pool: BlockPool) => number) =>
      kvPools.reduce((total, pool) => total + count(pool), 0);
    return {
      running: admission.running,
      waiting: admission.waiting,
      kvBlocks: sum(({ most }) => most),
      kvBlocksHeld: sum(({ size }) => size),
      kvBlocksUsed: sum(({ usedCount }) => usedCount),
      kvBlocksReserved: sum((pool) => admission.promised[pools.indexOf(pool)] ?? 0),
      kvBlockTokens: KV_BLOCK_TOKENS,
      stateBytes: bytes.most,
      stateBytesHeld: bytes.held,
      memory: this.#memoryHeld(),
      ...(this.laps && { busyMs: busyMs(this.#backend.profile?.()) }),
      cachedSequences: prefixes.sequences,
      cache: {
        ...cacheStatus(this.#counts, this.#room.bytesPerToken, this.#tiers?.held),
        evicted: { ...this.#counts.evicted, kv: prefixes.evicted },
      },
      ...(experts && { experts }),
      ...(lookahead && { lookahead: { ...lookahead } }),
      batches: this.#scheduler.batches,
      batchSequences: this.#scheduler.batchSequences,
    };
  }

  /** Says once that activations stayed float32. */
  #checkWidened(): void {
    if (this.#isWidened) return;
    const widened = this.#backend.widened?.();
    if (widened) this.#sayWidened(widened);
  }

  /** Throws where the batch had keys or values that the cache cannot hold. */
  #checkKvRange(): void {
    const overflow = this.#backend.kvOverflow?.();
    if (overflow) throw kvRangeError(overflow);
  }

  #sayWidened(widened: Widened): void {
    if (this.#isWidened) return;
    this.#isWidened = true;
    this.onWarning?.(widenedText(widened));
  }

  /** From now on computes with float32 activations wherever they leave a type's range; false: nothing changed. */
  async widen(widened: Widened): Promise<boolean> {
    this.#alive();
    const before = this.widenings;
    // One after the other: a request during another's widening waits for it, and computes again as well.
    const work = this.#widening.then(async () => {
      if (!(await this.#backend.widen?.())) return;
      this.widenings++;
      this.#sayWidened(widened);
    });
    this.#widening = work.catch(() => undefined);
    await work;
    return this.widenings > before;
  }

  /** Drops the state of ended sequences and its copies: it may hold values that are not finite. */
  async forgetPrefixes(): Promise<void> {
    this.#room.prefixes.clear();
    await this.#tiers?.discard();
  }

  /** Forgets the state of ended sequences and removes its copies; running sequences continue. */
  async clearCache(): Promise<void> {
    this.#alive();
    this.#room.prefixes.clear();
    this.#known.clear();
    await this.#tiers?.clear();
    for (const kind of this.drafters) await kind.clearCache?.();
  }

  /** Without the fields that only some backends report. */
  #memoryHeld(): MemoryHeld {
    const { weightBytes, kvBytes, workBytes } = this.#backend.memory();
    return { weightBytes, kvBytes, workBytes };
  }

  /** The profile of the time spent; `devices`: the limits to compare with, for each device of the placement. */
  profile(devices: readonly Device[] | undefined, trace: boolean): ProfileReport {
    this.#alive();
    const { laps } = this;
    if (!laps) {
      throw new UsageError(
        "profile(): nothing was recorded, because the model was opened without a profile. Open it with `profile: true`",
      );
    }
    const { threads } = this.#backend;
    const recorded = this.#backend.profile?.();
    const report = profileReport({ threads, kvType: this.kvType, laps, recorded, devices });
    if (!trace) return report;
    return { ...report, trace: chromeTrace(laps, recorded, this.#backend) };
  }

  /** Forgets the recorded batches; the load is kept. */
  resetProfile(): void {
    this.laps?.reset();
    this.#backend.resetProfile?.();
  }

  dispose(): void {
    this.#disposed = true;
    for (const kind of this.drafters) kind.dispose?.();
    this.#room.dispose();
    this.#backend.dispose();
  }

  /** See Backend.lost. */
  get lost(): Promise<DeviceLostError> | undefined {
    return this.#backend.lost;
  }

  /** Resolves when all state that waits to be copied out of the backend was copied, or after `mostMs` with the rest cancelled. */
  async settled(mostMs?: number): Promise<void> {
    await this.#tiers?.settled(mostMs);
  }

  /** Resolves when the threads of its backend have ended, after dispose(). */
  async ended(): Promise<void> {
    await this.#tiers?.close();
    await this.#backend.ended?.();
    for (const kind of this.drafters) await kind.ended?.();
  }

  #alive(): void {
    if (this.#disposed) throw new DisposedError("the engine");
  }
}

/** Whether its state is the one that this engine computes of its tokens for any request: only such state is kept by content. */
function isPlain({ isExact, isForeign }: Sequence): boolean {
  return isExact && !isForeign;
}

/** The message about a value that left a type's range: the value, the type, the weight, and the remedy. */
function widenedText({ value, weight, dtype, largest }: Widened): string {
  return `"${value}" reaches ${largest.toPrecision(4)}, which ${dtype} cannot hold: beside ${weight} it is not rounded to ${dtype}, as in llama.cpp, but stays f32 where it leaves the range`;
}

/** The largest batch of a processor: larger ones are a GPU's. */
const MOST_PROCESSOR_TOKENS = 256;

/** Prompt tokens in a batch while others decode, on a machine that was not measured. */
function defaultChunk({ maxTokens }: PlanLimits): number {
  // A GPU computes a whole batch in little more time than a quarter of one.
  if (maxTokens > MOST_PROCESSOR_TOKENS) return maxTokens;
  return maxTokens <= BATCH_LIMITS.maxTokens ? maxTokens / 2 : maxTokens / 4;
}

function checkSupport(backend: Backend, graph: Graph): void {
  const refused = new Set<string>();
  for (const node of graph.nodes) {
    const answer = backend.supports(node);
    if (answer !== true) refused.add(`${node.name}: ${answer}`);
  }
  if (refused.size > 0) {
    const most = 8;
    const more = refused.size > most ? `\n  ... and ${refused.size - most} more` : "";
    throw new ModelError(
      `backend "${backend.name}" cannot run this model. Open it with \`backend: "cpu"\` and no layers on a GPU. In detail:\n  ${[...refused].slice(0, most).join("\n  ")}${more}`,
    );
  }
}

/** The model's parts as they are placed on two backends; one entry if it is not split. */
function partsOf(model: PhaseModel, backend: Backend): PhaseModel[] {
  const graphs = backend.parts?.() ?? [model.graph];
  return graphs.map((graph) => ({ ...model, graph }));
}

/** The threads that compute a batch; none where a GPU has every layer. */
function threadsOf({ threads, placement }: BackendInfo): number {
  const isOnDevice = placement.length > 0 && placement.every(({ isDevice }) => isDevice);
  return isOnDevice ? 0 : threads;
}
