// Models that were made from others (Ollama's /api/create and /api/copy): another name for a model's weights, with parameters and a
// system message of its own. One with other open options (a template, a larger context) is opened beside the original.
//
// They persist: each is written to the disk before the request that makes it is answered, and served again after a restart. The disk
// is behind an interface; `lantern serve` implements it (src/catalog/derived.ts). One that cannot be served gives the reason when it is
// named.

import { messageOf } from "../../../src/base/errors.ts";
import type { DerivedModel, MadeEntry } from "../../../src/catalog/derived.ts";
import { UsageError } from "../../../src/index.ts";
import { invalidRequest, unsupportedField } from "../errors.ts";
import { modelBusy } from "./errors.ts";
import type { ModelHost } from "./host.ts";
import type { ModelPreset } from "./on-demand.ts";
import type { ModelRegistry } from "./registry.ts";

/** The store of derived models. */
export interface DerivedStore {
  list(): Promise<readonly MadeEntry[]>;
  write(made: DerivedModel): Promise<void>;
  remove(name: string): Promise<void>;
  /** The path of an uploaded file, by its digest; undefined: it is not there. */
  findBlob(digest: string): Promise<string | undefined>;
  /** Stores an upload, if it has that digest. */
  writeBlob(digest: string, bytes: AsyncIterable<Uint8Array>): Promise<void>;
  /** Deletes old uploads that none of these digests names. */
  pruneBlobs(named: ReadonlySet<string>): Promise<void>;
}

/** The options for Ollama's parameters; throws if one of them is wrong. */
export type ParameterReader = (parameters: DerivedModel["parameters"]) => {
  readonly options: NonNullable<ModelPreset["sampling"]>;
  readonly contextSize: number | undefined;
};

interface Parts {
  readonly models: ModelHost;
  readonly registry: ModelRegistry;
  /** undefined: they end with the server. */
  readonly store: DerivedStore | undefined;
  readonly optionsOf: ParameterReader;
  log(line: string): void;
}

const most = 1000;

export class DerivedModels {
  readonly #parts: Parts;
  readonly #made = new Map<string, DerivedModel>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** undefined: they end with the server. */
  get store(): DerivedStore | undefined {
    return this.#parts.store;
  }

  get(name: string): DerivedModel | undefined {
    return this.#made.get(name);
  }

  /** Its default options, unless a request sets others. */
  preset({ parameters, system }: DerivedModel): ModelPreset {
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

  /** Makes a model, or replaces it. */
  async set(made: DerivedModel): Promise<void> {
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
    const { models, registry, store } = this.#parts;
    const made = this.#made.get(name);
    if (!made && !models.unusable.has(name)) return false;
    if (made?.isSeparate && !(await leaves(registry, name))) {
      throw modelBusy(name);
    }
    await store?.remove(name);
    this.#made.delete(name);
    models.unusable.delete(name);
    models.variants.delete(name);
    if (registry.onDemand?.forget(name)) await registry.forget(name);
    return true;
  }

  async #serve(made: DerivedModel): Promise<void> {
    const { models, registry, optionsOf } = this.#parts;
    const { name, from: of, template, created } = made;
    const { contextSize } = optionsOf(made.parameters);
    const preset = this.preset(made);
    this.#checkSeparate(made);
    const adapters = await this.#adapters(made);
    if (made.isSeparate) {
      models.variants.delete(name);
      await registry.onDemand!.derive(name, { of, preset, template, contextSize, adapters });
    } else models.variants.set(name, { of, preset, created });
    this.#made.set(name, made);
  }

  /** The paths of its adapters. */
  async #adapters({ adapters = [] }: DerivedModel): Promise<string[]> {
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

  #checkSeparate({ isSeparate, template, adapters = [] }: DerivedModel): void {
    if (!isSeparate || this.#parts.registry.onDemand) return;
    const field = adapters.length > 0 ? "adapters" : "parameters.num_ctx";
    throw unsupportedField(
      template === undefined ? field : "template",
      "this server loads no models by their names. Start it with --models-dir or --models-autoload",
    );
  }
}

async function leaves(registry: ModelRegistry, name: string): Promise<boolean> {
  await registry.stop(name);
  return await registry.unload(name);
}
