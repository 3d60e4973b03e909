// The lifecycle of models on a fake host, for lifecycle.test.ts: whatever takes time ends when a test says so, and how. After each move
// it is compared with what must always be so.

import type { Event, State } from "../../apps/server/models/lifecycle.ts";
import {
  type Entry,
  type Load,
  ModelMachine,
  type Release,
  type Waiter,
} from "../../apps/server/models/machine.ts";
import { MemoryError, type Model } from "../../src/index.ts";

/** A promise that settles at once: its readers are called before settle() returns. */
class Later<T> implements PromiseLike<T> {
  readonly what: string;
  #ok: ((value: T) => unknown) | undefined;
  #bad: ((error: unknown) => unknown) | undefined;

  constructor(what: string) {
    this.what = what;
  }

  // biome-ignore lint/suspicious/noThenProperty: it is a promise
  then(ok?: ((value: T) => unknown) | null, bad?: ((error: unknown) => unknown) | null): never {
    this.#ok = ok ?? undefined;
    this.#bad = bad ?? undefined;
    return undefined as never;
  }

  resolve(value: T): void {
    this.#ok?.(value);
  }

  reject(error: unknown): void {
    this.#bad?.(error);
  }
}

/** Something that has begun and ends later, in one of several ways. */
interface Pending {
  readonly what: string;
  readonly ends: Readonly<Record<string, () => void>>;
}

interface FakeModel {
  readonly name: string;
  readonly number: number;
  isIn: boolean;
  isClosed: boolean;
}

interface Asker {
  readonly id: string;
  readonly waiter: Waiter;
  release?: Release;
  model?: FakeModel;
  outcome?: "admitted" | "refused" | undefined;
}

export interface WorldOptions {
  /** Bytes of each model. */
  readonly sizes: Readonly<Record<string, number>>;
  readonly most?: number;
  readonly bytes?: number;
  readonly pinned?: string;
  /** Requests that wait or hold a model at a time. */
  readonly requests: number;
  /** How often the options of a model change. */
  readonly versions?: number;
  /** How many loads are chosen. */
  readonly choices?: number;
  readonly kinds: ReadonlySet<string>;
}

/** Steps of the table that were taken in any world. */
export const stepsSeen: Set<string> = new Set();

export class World {
  readonly machine: ModelMachine;
  readonly #options: WorldOptions;
  readonly #pending: Pending[] = [];
  readonly #timers = new Set<{ run: () => void }>();
  readonly #askers: Asker[] = [];
  readonly #models = new Map<unknown, FakeModel>();
  readonly #versions = new Map<string, number>();
  /** Models that leave for a load that found too little memory. */
  readonly #leftFor = new Map<string, Set<string>>();
  #opened = 0;
  #chosen = 0;
  /** Names of models that were called by those who do not hold them: no limit holds them. */
  readonly #touched = new Set<string>();

  constructor(options: WorldOptions) {
    this.#options = options;
    this.machine = new ModelMachine({
      limits: { models: options.most ?? Infinity, bytes: options.bytes, autoload: true },
      mostWaiting: 1000,
      needs: (id) => ready(options.sizes[id]!),
      open: (id, load) => this.#open(id, load),
      version: (id) => String(this.#versions.get(id) ?? 0),
      isPinned: (id) => id === options.pinned,
      keepMs: () => 1000,
      changed: () => {},
      listed: () => {},
      stepped: (state: State, event: Event) => stepsSeen.add(`${state} ${event}`),
      time: () => 0,
      after: (_, run) => {
        const timer = { run };
        this.#timers.add(timer);
        return () => this.#timers.delete(timer);
      },
      dispose: (model) => {
        const fake = this.#models.get(model)!;
        if (fake.isClosed) throw new Error(`${fake.name} is closed twice`);
        this.#checkUnused(fake, "closed");
        fake.isClosed = true;
        return this.#later<void>(`close ${fake.name}`, (later) => ({
          ok: () => {
            fake.isIn = false;
            later.resolve();
          },
        }));
      },
      log: (line) => {
        if (!line.includes("could not")) throw new Error(line);
      },
    });
  }

  /** What can happen now, by name. */
  moves(): Map<string, () => void> {
    const moves = new Map<string, () => void>();
    const { sizes, requests, kinds, versions = 1, choices = 2 } = this.#options;
    const add = (kind: string, name: string, run: () => void): void => {
      if (kinds.has(kind)) moves.set(`${kind} ${name}`, run);
    };
    const open = this.#askers.filter(({ outcome, release }) => !outcome || release);
    for (const id of Object.keys(sizes)) {
      const { state = "unloaded", resident } = this.machine.get(id) ?? {};
      const load = this.machine.loads.find((one) => one.id === id && !one.abort.signal.aborted);
      if (open.length < requests) {
        add("ask", id, () => this.machine.ask(id, this.#asker(id)));
        add("again", id, () => this.#again(id));
        if (this.#chosen < choices) add("choose", id, () => this.#choose(id));
      }
      if (load) add("stop", id, () => this.machine.stop(load, new Error("stopped")));
      if (
        resident &&
        state !== "stopping" &&
        state !== "loading" &&
        !this.machine.get(id)?.leaving
      ) {
        add("forget", id, () => this.machine.send(id, "forget"));
      }
      if (resident) {
        add("touch", id, () => {
          this.#touched.add(id);
          const fake = this.#models.get(resident.served.model)!;
          fake.isIn = true;
          this.machine.send(id, "touched");
        });
        const version = this.#versions.get(id) ?? 0;
        if (version < versions) add("renew", id, () => this.#versions.set(id, version + 1));
      }
      if (state === "idle") add("leave", id, () => this.machine.send(id, "leave"));
      if (!resident && (state === "unloaded" || state === "failed") && !this.#touched.has(id)) {
        add("add", id, () => {
          this.#touched.add(id); // whoever opens it asks nobody for room
          this.machine.add({ id, created: 0, model: this.#model(id) });
        });
      }
      if (state === "failed") add("clear", id, () => this.machine.send(id, "clear"));
    }
    for (const [at, asker] of open.entries()) {
      if (asker.release) add("release", String(at), () => this.#release(asker));
      else add("abort", String(at), () => this.machine.leave(asker.waiter, new Error("gone")));
    }
    for (const [at, timer] of [...this.#timers].entries()) {
      add("timer", String(at), () => {
        this.#timers.delete(timer);
        timer.run();
      });
    }
    for (const pending of this.#pending) {
      for (const [how, end] of Object.entries(pending.ends)) {
        add(how, pending.what, () => {
          this.#pending.splice(this.#pending.indexOf(pending), 1);
          end();
        });
      }
    }
    return moves;
  }

  /** Throws where something is not as it must always be. */
  check(): void {
    const loading = this.#pending.filter(({ what }) => /^(open|load) /.test(what));
    if (loading.length > 1) throw new Error(`two loads: ${loading.map(({ what }) => what)}`);
    const coming = this.machine.loads
      .filter(({ phase }) => phase === "running")
      .map(({ id }) => id);
    const names = new Set(
      [...this.#models.values()].filter(({ isIn }) => isIn).map(({ name }) => name),
    );
    for (const id of coming) names.add(id);
    for (const id of this.#touched) names.delete(id);
    for (const others of this.#leftFor.values()) {
      for (const id of others) if (this.machine.get(id)!.state !== "unloading") others.delete(id);
    }
    const { most = Infinity, bytes = Infinity, sizes } = this.#options;
    const sum = [...names].reduce((all, id) => all + sizes[id]!, 0);
    if (names.size > most || sum > bytes) throw new Error(`too much in memory: ${[...names]}`);
    for (const { model } of this.#askers.filter(({ release }) => release)) {
      if (!model!.isIn || model!.isClosed) throw new Error(`${model!.name} left while it was used`);
    }
  }

  /** Everything that runs ends well, and every answer: then nobody waits, and no model is on its way. */
  settle(): void {
    const good = /^(release|ok|timer) /;
    for (let moves = 0; moves < 1000; moves++) {
      const open = [...this.moves()].filter(([name]) => good.test(name));
      const waits = this.machine.loads.length > 0 || this.#pending.length > 0;
      const held = this.#askers.some(({ release }) => release);
      if (!waits && !held) break;
      // Timers last: a model that takes no part must not be needed for what waits.
      const [first] = open.toSorted(
        ([a], [b]) => Number(/^timer/.test(a)) - Number(/^timer/.test(b)),
      );
      if (!first) break;
      first[1]();
      this.check();
    }
    const lost = this.#askers.filter(({ outcome }) => !outcome);
    if (lost.length > 0) throw new Error(`lost: ${lost.map(({ id }) => id)}; ${this.key()}`);
    for (const { id, state } of this.machine.entries()) {
      if (!["unloaded", "failed", "idle"].includes(state)) throw new Error(`${id} stays ${state}`);
    }
  }

  /** Two worlds with the same key go on in the same way. */
  key(): string {
    const entries = this.machine.entries().map((entry) => this.#entryKey(entry));
    const order = this.machine.entries().toSorted((a, b) => a.used - b.used);
    const loads = this.machine.loads.map(
      ({ id, phase, waiters, chosen, abort, behind, tries, by }) =>
        [
          id,
          phase,
          waiters.size,
          !!chosen && waiters.has(by),
          !!chosen,
          abort.signal.aborted,
          behind?.id,
          tries,
        ].join(),
    );
    const open = this.#askers.filter(({ outcome, release }) => !outcome || release);
    const askers = open.map(({ id, model, release }) => `${id}${!!release}${model?.number ?? ""}`);
    const models = [...this.#models.values()].filter(({ isIn }) => isIn);
    const numbers = new Map(models.map(({ number }, at) => [String(number), String(at)]));
    const text = [
      entries.toSorted(byText).join(),
      order.map(({ id }) => id),
      loads,
      askers.toSorted(byText).join(),
      this.#pending.map(({ what }) => what),
      this.#timers.size,
      [...this.#versions],
      this.#chosen,
      [...this.#touched].toSorted(byText),
    ];
    return JSON.stringify(text).replaceAll(
      /#(\d+)/g,
      (_, number: string) => `#${numbers.get(number) ?? "x"}`,
    );
  }

  #entryKey({ id, state, resident, leaving, isResting }: Entry): string {
    return [
      id,
      state,
      isResting,
      resident ? `${resident.users}v${resident.version}` : "-",
      !!leaving,
    ].join();
  }

  #later<T>(what: string, endsOf: (later: Later<T>) => Pending["ends"]): Later<T> {
    const later = new Later<T>(what);
    this.#pending.push({ what, ends: endsOf(later) });
    return later;
  }

  #open(id: string, load: Load): Later<never> {
    if (load.abort.signal.aborted) throw new Error(`${id} is opened after it was stopped`);
    this.#checkShort(id);
    return this.#later(`open ${id}`, (later) => ({
      ok: () => later.resolve({ id, created: 0, model: this.#model(id) } as never),
      fail: () => later.reject(new Error("broken")),
      short: () => this.#short(id, (error) => later.reject(error)),
    }));
  }

  #model(id: string): Model {
    const fake: FakeModel = { name: id, number: ++this.#opened, isIn: true, isClosed: false };
    const weightBytes = this.#options.sizes[id]!;
    const info = { weightBytes, stateBytes: 0, kvBytesPerToken: 0, contextSize: 0 };
    const model = {
      info,
      load: () => {
        this.#checkShort(id);
        return this.#later<void>(`load ${id}`, (later) => ({
          ok: () => {
            fake.isIn = true;
            later.resolve();
          },
          fail: () => later.reject(new Error("broken")),
          short: () => this.#short(id, (error) => later.reject(error)),
        }));
      },
      unload: () => {
        this.#checkUnused(fake, "unloaded");
        return this.#later<boolean>(`unload ${id}`, (later) => ({
          ok: () => {
            fake.isIn = this.machine.get(id)?.state === "reviving" && fake.isIn;
            later.resolve(true);
          },
          busy: () => later.resolve(false),
          fail: () => later.reject(new Error("broken")),
        }));
      },
    } as unknown as Model;
    this.#models.set(model, fake);
    return model;
  }

  #checkUnused(fake: FakeModel, what: string): void {
    const isUsed = this.#askers.some(({ release, model }) => release && model === fake);
    if (isUsed) throw new Error(`${fake.name} is ${what} while a request uses it`);
  }

  #asker(id: string): Waiter {
    const settle = (outcome: "admitted" | "refused"): void => {
      if (asker.outcome) throw new Error(`a request is ${outcome} that was ${asker.outcome}`);
      asker.outcome = outcome;
    };
    const asker: Asker = {
      id,
      waiter: {
        admit: (release) => {
          settle("admitted");
          const { resident, state } = this.machine.get(id)!;
          if (!resident || /ing$/.test(state.replace(/draining|retiring/, ""))) {
            throw new Error(`a request is admitted while ${id} is ${state}`);
          }
          asker.release = release;
          asker.model = this.#models.get(resident.served.model)!;
        },
        refuse: () => {
          if (asker.outcome !== "admitted") settle("refused");
        },
      },
    };
    this.#askers.push(asker);
    return asker.waiter;
  }

  #release(asker: Asker): void {
    const { release } = asker;
    delete asker.release;
    release!();
    release!(); // which must not count
  }

  /** As a request does that begins to compute: if it holds the model, it must not wait for a load that waits for it. */
  #again(id: string): void {
    const model = this.#models.get(this.machine.get(id)?.resident?.served.model);
    const isHolder = this.#askers.some((one) => one.release && one.model === model);
    const waiter = this.#asker(id);
    this.machine.ask(id, waiter, true);
    const { outcome } = this.#askers.find((one) => one.waiter === waiter)!;
    if (isHolder && outcome !== "admitted") throw new Error(`a holder of ${id} waits`);
  }

  /** A load that found too little memory: another model leaves for it, and has left before the next try. */
  #short(id: string, reject: (error: unknown) => void): void {
    const leaving = (): string[] =>
      this.machine.entries().flatMap((one) => (one.state === "unloading" ? [one.id] : []));
    const before = leaving();
    reject(new MemoryError("too large"));
    this.#leftFor.set(id, new Set(leaving().filter((one) => !before.includes(one))));
  }

  #checkShort(id: string): void {
    for (const other of this.#leftFor.get(id) ?? []) {
      if (this.machine.loads[0]!.tries > 0 && this.machine.get(other)!.state === "unloading")
        throw new Error(`${id} is tried too soon`);
    }
    this.#leftFor.delete(id);
  }

  #choose(id: string): void {
    this.#chosen++;
    const opening = {
      needs: () => ready(this.#options.sizes[id]!),
      open: (_: string, load: Load) => this.#open(id, load),
    };
    this.machine.choose(id, this.#asker(id), opening);
  }
}

function ready<T>(value: T): PromiseLike<T> {
  // biome-ignore lint/suspicious/noThenProperty: it is a promise
  return { then: (ok: (value: T) => unknown) => ok(value) as never } as PromiseLike<T>;
}

function byText(a: string, b: string): number {
  return a < b ? -1 : 1;
}
