// The adapters of a loaded model: which a request uses, and the scales of requests that do not say.

import type { AdapterInfo, AdapterScale } from "../api/api.ts";
import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { type AdapterUse, NO_ADAPTERS } from "./state/adapter-use.ts";

/** Each adds ops to every layer. */
export const MOST_ADAPTERS = 16;

/** More choices than that are not remembered: their state is computed again. */
const MOST_CHOICES = 1024;

export interface LoadedAdapter extends AdapterInfo {
  /** What names its weights. */
  readonly fingerprint: string;
}

export class Adapters {
  readonly #loaded: readonly LoadedAdapter[];
  readonly #known = new Map<string, AdapterUse>();
  #default: AdapterUse;

  constructor(loaded: readonly LoadedAdapter[]) {
    this.#loaded = loaded;
    this.#default = this.#interned(loaded.map(({ scale }) => scale));
  }

  /** What a request uses that asks for this; undefined: it does not say. */
  use(asked: readonly AdapterScale[] | undefined): AdapterUse {
    return asked === undefined ? this.#default : this.#interned(this.#scales(asked));
  }

  /** The scales of requests that do not say, from now on. */
  setDefault(asked: readonly AdapterScale[]): void {
    this.#default = this.use(asked);
  }

  /** Those that are not named are not used. */
  #scales(asked: readonly AdapterScale[]): number[] {
    const scales = this.#loaded.map(() => 0);
    const most = this.#loaded.length;
    if (!Array.isArray(asked)) {
      throw new UsageError(
        `adapters: got ${show(asked)}, expected a list as [{ id: 0, scale: 1 }]`,
      );
    }
    for (const one of asked as readonly Partial<AdapterScale>[]) {
      const { id, scale } = one ?? {};
      if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= most) {
        const expected =
          most === 0
            ? "none: the model was opened without adapters"
            : `an integer from 0 to ${most - 1}, the number of an adapter that the model was opened with`;
        throw new UsageError(`adapters: got the id ${show(id)}, expected ${expected}`);
      }
      if (typeof scale !== "number" || !Number.isFinite(Math.fround(scale))) {
        throw new UsageError(
          `adapters: got the scale ${show(scale)} for adapter ${id}, expected a finite number`,
        );
      }
      scales[id] = scale;
    }
    return scales;
  }

  #interned(numbers: readonly number[]): AdapterUse {
    if (numbers.every((scale) => Math.fround(scale) === 0)) return NO_ADAPTERS;
    const scales = Float32Array.from(numbers);
    const used = this.#loaded.flatMap(({ fingerprint }, i) =>
      scales[i] === 0 ? [] : [[fingerprint, scales[i]!]],
    );
    const key = JSON.stringify(used);
    const known = this.#known.get(key);
    if (known) return known;
    if (this.#known.size >= MOST_CHOICES) this.#known.clear();
    const use = { scales, key };
    this.#known.set(key, use);
    return use;
  }
}
