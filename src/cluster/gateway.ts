// The models of a cluster for a server: one for each name that workers announce, from its first worker on. A model whose workers are all
// gone stays in the list: requests for it wait a moment, and are told to come again.

import type { NatsConnection } from "@nats-io/nats-core";
import { ClusterModel, sameModel } from "./cluster-model.ts";
import type { ClusterTimes } from "./messages.ts";
import { Workers } from "./workers.ts";

export interface GatewayOptions {
  readonly connection: NatsConnection;
  /** A model has its first worker. */
  readonly onModel: (id: string, model: ClusterModel) => void;
  readonly log: (line: string) => void;
  readonly times?: Partial<ClusterTimes>;
}

export class Gateway {
  readonly workers: Workers;
  readonly #options: GatewayOptions;
  readonly #models = new Map<string, ClusterModel>();
  /** Workers that have been spoken of. */
  readonly #seen = new Set<string>();

  constructor(options: GatewayOptions) {
    this.#options = options;
    this.workers = new Workers(options.connection, options.log, options.times);
    this.workers.watch(() => this.#update());
  }

  close(): void {
    this.workers.watch(() => {});
    this.workers.close();
  }

  #update(): void {
    const { onModel, log, times } = this.#options;
    for (const { id, model, facts, capacity } of this.workers.list()) {
      if (this.#seen.has(id)) continue;
      this.#seen.add(id);
      const known = this.#models.get(model);
      if (known && !sameModel(known.info, facts.info)) {
        log(
          `cluster: worker ${id} has another model under the name ${JSON.stringify(model)} than the workers before it (architecture, parameters, type or context differ), and gets no requests. Start it with another --alias`,
        );
        continue;
      }
      log(`cluster: worker ${id} of ${model}, ${capacity} at a time`);
      if (known) continue;
      const made = new ClusterModel(model, facts.info, this.workers, times);
      this.#models.set(model, made);
      onModel(model, made);
    }
  }
}
