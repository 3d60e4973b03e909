// Models that were made from others (Ollama's /api/create and /api/copy): another name for a model's weights, with parameters and a
// system message of its own. One that is opened in another way (a template, a larger context) is opened beside the original.
//
// They last: each is written to the disk before the request that makes it is answered, and served again after a restart. The disk is
// behind an interface; `lantern serve` implements it (src/catalog/made.ts). One that cannot be served says why when it is named.

import { messageOf } from "../base/errors.ts";
import { UsageError } from "../index.ts";
import { invalidRequest, unsupportedField } from "./errors.ts";
import { modelBusy } from "./load-errors.ts";
import type { ModelHost } from "./model-host.ts";
import type { ModelPool } from "./model-pool.ts";
import type { ModelPreset } from "./on-demand.ts";

export interface MadeModel {
  readonly name: string;
  /** The model whose weights it has. */
  readonly from: string;
  readonly system?: string | undefined;
  /** A Jinja template, or the name of a built-in one. */
  readonly template?: string | undefined;
  /** Digests of the LoRA adapters that it is opened with (Ollama's blobs). */
  readonly adapters?: readonly string[] | undefined;
  /** As Ollama names them. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** Whether it is opened beside the model that it is made from. */
  readonly isSeparate: boolean;
  /** Seconds since 1970. */
  readonly created: number;
}

/** A model, or why it cannot be read. */
export interface MadeEntry {
  readonly name: string;
  readonly made?: MadeModel | undefined;
  readonly problem?: string | undefined;
}

/** Where they last. */
export interface MadeStore {
  list(): Promise<readonly MadeEntry[]>;
  write(made: MadeModel): Promise<void>;
  remove(name: string): Promise<void>;
  /** Where an uploaded file is, by its digest; undefined: it is not there. */
  findBlob(digest: string): Promise<string | undefined>;
  /** Stores an upload, if it has that digest. */
  writeBlob(digest: string, bytes: AsyncIterable<Uint8Array>): Promise<void>;
  /** Deletes old uploads that none of these digests names. */
  pruneBlobs(named: ReadonlySet<string>): Promise<void>;
}

/** What Ollama's parameters stand for; throws where something is wrong with them. */
export type ParameterReader = (parameters: MadeModel["parameters"]) => {
  readonly options: NonNullable<ModelPreset["sampling"]>;
  readonly contextSize: number | undefined;
};

interface Parts {
  readonly models: ModelHost;
  readonly pool: ModelPool;
  /** undefined: they end with the server. */
  readonly store: MadeStore | undefined;
  readonly optionsOf: ParameterReader;
  log(line: string): void;
}

const most = 1000;

export class MadeModels {
  readonly #parts: Parts;
  readonly #made = new Map<string, MadeModel>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** undefined: they end with the server. */
  get store(): MadeStore | undefined {
    return this.#parts.store;
  }

  get(name: string): MadeModel | undefined {
    return this.#made.get(name);
  }

  /** What it is asked with, unless a request says otherwise. */
  preset({ parameters, system }: MadeModel): ModelPreset {
    const { options: sampling } = this.#parts.optionsOf(parameters);
    return { sampling, ...(system && { system }) };
  }

  /** Serves those that an earlier server made. */
  async restore(): Promise<void> {
    const { store, models, log } = this.#parts;
    const found = await store?.list().catch((error: unknown) => {
      log(`models that were made with /api/create are not served: ${messageOf(error)}`);
      return [];
    });
    const named = new Set((found ?? []).flatMap(({ made }) => made?.adapters ?? []));
    const isWhole = found?.every(({ made }) => made);
    if (isWhole) await store?.pruneBlobs(named).catch((error: unknown) => log(messageOf(error)));
    for (const { name, made, problem = "it is empty" } of found ?? []) {
      try {
        if (!made) throw new UsageError(problem);
        await this.#serve(made);
      } catch (error) {
        models.unusable.set(name, messageOf(error));
        log(`the model ${JSON.stringify(name)} is not served: ${messageOf(error)}`);
      }
    }
  }

  /** Makes a model, or makes it anew. */
  async set(made: MadeModel): Promise<void> {
    const { models, store } = this.#parts;
    const count = this.#made.size + models.unusable.size;
    const isNew = !this.#made.has(made.name) && !models.unusable.has(made.name);
    if (isNew && count >= most) {
      throw invalidRequest(
        `there are ${count} models that were made from others, expected at most ${most}. Delete one with /api/delete`,
        "model",
        "too_many_models",
      );
    }
    this.#checkSeparate(made);
    await this.#adapters(made);
    await store?.write(made);
    models.unusable.delete(made.name);
    await this.#serve(made);
  }

  /** false: none of that name was made. */
  async remove(name: string): Promise<boolean> {
    const { models, pool, store } = this.#parts;
    const made = this.#made.get(name);
    if (!made && !models.unusable.has(name)) return false;
    if (made?.isSeparate && !(await leaves(pool, name))) {
      throw modelBusy(name);
    }
    await store?.remove(name);
    this.#made.delete(name);
    models.unusable.delete(name);
    models.variants.delete(name);
    if (pool.onDemand?.forget(name)) await pool.forget(name);
    return true;
  }

  async #serve(made: MadeModel): Promise<void> {
    const { models, pool, optionsOf } = this.#parts;
    const { name, from: of, template, created } = made;
    const { contextSize } = optionsOf(made.parameters);
    const preset = this.preset(made);
    this.#checkSeparate(made);
    const adapters = await this.#adapters(made);
    if (made.isSeparate) {
      models.variants.delete(name);
      await pool.onDemand!.derive(name, { of, preset, template, contextSize, adapters });
    } else models.variants.set(name, { of, preset, created });
    this.#made.set(name, made);
  }

  /** Where the files of its adapters are. */
  async #adapters({ adapters = [] }: MadeModel): Promise<string[]> {
    const found: string[] = [];
    for (const digest of adapters) {
      const path = await this.#parts.store?.findBlob(digest);
      if (path === undefined) {
        throw new UsageError(
          `its adapter ${digest} is not here: upload it with POST /api/blobs/${digest}, as Ollama's clients do, and make the model again`,
        );
      }
      found.push(path);
    }
    return found;
  }

  #checkSeparate({ isSeparate, template, adapters = [] }: MadeModel): void {
    if (!isSeparate || this.#parts.pool.onDemand) return;
    const field = adapters.length > 0 ? "adapters" : "parameters.num_ctx";
    throw unsupportedField(
      template === undefined ? field : "template",
      "this server loads no models by their names. Start it with --models-dir or --models-autoload",
    );
  }
}

async function leaves(pool: ModelPool, name: string): Promise<boolean> {
  await pool.stop(name);
  return await pool.unload(name);
}
