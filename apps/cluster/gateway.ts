// The models of a cluster for a server: one for each name that workers announce, from its first worker on. A model whose workers are all
// gone stays in the list: requests for it wait a moment, and are told to come again.
//
// A name stands for one model at a time (model-fingerprint.ts): that of its first worker, until none of its workers has been there for a while.
// Workers with another model under the same name get no calls meanwhile. Tabs are other people's programs: the model of a tab gives way to the
// model of a worker that is no tab.

import type { NatsConnection } from "@nats-io/nats-core";
import { ClusterModel } from "./cluster-model.ts";
import { type ClusterTimes, clusterTimes, isOfGroup } from "./messages.ts";
import { shortFingerprint } from "./model-fingerprint.ts";
import { type KnownWorker, Workers } from "./workers.ts";

export interface GatewayOptions {
  readonly connection: NatsConnection;
  /** A model has its first worker. */
  readonly onModel: (id: string, model: ClusterModel) => void;
  /** A name stands for this model from now on. */
  readonly onFingerprint?: (model: ClusterModel, fingerprint: string) => void;
  readonly log: (line: string) => void;
  readonly times?: Partial<ClusterTimes>;
}

/** The last time that workers with one model were there: any worker, and any that is no tab. */
interface Heard {
  any: number;
  own: number;
}

interface Name {
  readonly heard: Map<string, Heard>;
  model: ClusterModel | undefined;
}

export class Gateway {
  readonly workers: Workers;
  readonly #options: GatewayOptions;
  readonly #times: ClusterTimes;
  readonly #names = new Map<string, Name>();
  /** Workers that have been logged, each with the model of its name then. */
  readonly #said = new Map<string, string>();
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(options: GatewayOptions) {
    this.#options = options;
    this.#times = { ...clusterTimes, ...options.times };
    this.workers = new Workers(options.connection, options.log, options.times);
    this.workers.watch(() => this.#update());
    this.#timer = setInterval(() => this.#update(), this.#times.beat);
  }

  /** The fingerprint that a name stands for now; undefined: it had no worker yet. */
  fingerprintOf(id: string): string | undefined {
    return this.#names.get(id)?.model?.fingerprint;
  }

  close(): void {
    clearInterval(this.#timer);
    this.workers.watch(() => {});
    this.workers.close();
  }

  #update(): void {
    const byName = Map.groupBy(this.workers.list(), ({ model }) => model);
    for (const id of byName.keys()) {
      if (!this.#names.has(id)) this.#names.set(id, { heard: new Map(), model: undefined });
    }
    for (const [id, name] of this.#names) {
      const workers = byName.get(id) ?? [];
      this.#choose(id, name, workers);
      const model = name.model!;
      model.refused = workers.filter((one) => one.fingerprint !== model.fingerprint).length;
      for (const worker of workers) this.#say(worker, model);
    }
    for (const id of this.#said.keys()) if (!this.workers.has(id)) this.#said.delete(id);
  }

  /** The model that a name stands for: the earlier one, unless that is gone or was only announced by tabs. */
  #choose(id: string, name: Name, workers: readonly KnownWorker[]): void {
    const { onModel, onFingerprint, log } = this.#options;
    const now = performance.now();
    const candidates = [...Map.groupBy(workers, ({ fingerprint }) => fingerprint)].map(
      ([fingerprint, those]) => {
        const own = those.filter((worker) => !isOfGroup(worker.id)).length;
        const before = name.heard.get(fingerprint)?.own ?? -Infinity;
        name.heard.set(fingerprint, { any: now, own: own > 0 ? now : before });
        const strength = this.#strength(name, fingerprint, now);
        return { fingerprint, order: [strength, own, those.length], first: those[0]! };
      },
    );
    for (const fingerprint of name.heard.keys()) {
      if (this.#strength(name, fingerprint, now) === 0) name.heard.delete(fingerprint);
    }
    const [best] = candidates.sort((a, b) => compare(b.order, a.order));
    if (!best) return;
    const { model } = name;
    if (!model) {
      name.model = new ClusterModel(id, best.first, this.workers, this.#options.times);
      onModel(id, name.model);
    } else if (best.order[0]! > this.#strength(name, model.fingerprint, now)) {
      log(
        `cluster: ${id} is the model ${shortFingerprint(best.fingerprint)} from now on, and was ${shortFingerprint(model.fingerprint)}: no worker of that is there any more, or tabs only. Batches that began with it wait for workers that have it`,
      );
      model.become(best.first);
    } else {
      return;
    }
    onFingerprint?.(name.model!, best.fingerprint);
  }

  #strength({ heard }: Name, fingerprint: string, now: number): number {
    const { any = -Infinity, own = -Infinity } = heard.get(fingerprint) ?? {};
    const from = now - this.#times.keep;
    if (own >= from) return 2;
    return any >= from ? 1 : 0;
  }

  #say({ id, model: name, fingerprint, capacity }: KnownWorker, model: ClusterModel): void {
    if (this.#said.get(id) === model.fingerprint) return;
    this.#said.set(id, model.fingerprint);
    const { log } = this.#options;
    if (fingerprint === model.fingerprint) {
      log(`cluster: worker ${id} of ${name}, ${capacity} at a time`);
      return;
    }
    log(
      `cluster: worker ${id} has another model under the name ${JSON.stringify(name)} (${shortFingerprint(fingerprint)}) than the workers that it stands for (${shortFingerprint(model.fingerprint)}): weights, adapters, chat template or context differ. It gets no requests, and no lines of their batches. Start it with another --alias, or with the same model`,
    );
  }
}

/** The first difference decides. */
function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((value, i) => value !== b[i]);
  return at < 0 ? 0 : a[at]! - b[at]!;
}
