// The adapters of a loaded model: which a request uses, and the scales of requests that do not say. An activated adapter (aLoRA) changes
// the tokens after certain others, its invocation: the last one in the prompt counts, and without one it is not used.

import type { AdapterInfo, AdapterScale } from "../api/api.ts";
import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { type AdapterUse, NO_ADAPTERS } from "./state/adapter-use.ts";

/** Each adds ops to every layer. */
export const MOST_ADAPTERS = 16;

/** An activated adapter begins that many tokens before its invocation, as in llama.cpp. */
const TOKENS_BEFORE = 1;

/** More choices than that are not remembered: their state is computed again. */
const MOST_CHOICES = 1024;

export interface LoadedAdapter extends AdapterInfo {
  /** A fingerprint of its weights. */
  readonly fingerprint: string;
}

export class Adapters {
  readonly #loaded: readonly LoadedAdapter[];
  readonly #known = new Map<string, AdapterUse>();
  /** The scales of requests that do not say. */
  #default: readonly number[];

  constructor(loaded: readonly LoadedAdapter[]) {
    this.#loaded = loaded;
    this.#default = loaded.map(({ scale }) => scale);
  }

  /** The adapters that a request with this prompt uses; `asked` undefined: the request does not name any. */
  use(asked: readonly AdapterScale[] | undefined, prompt: readonly number[]): AdapterUse {
    if (this.#loaded.length === 0 && asked === undefined) return NO_ADAPTERS;
    const scales = asked === undefined ? [...this.#default] : this.#scales(asked);
    this.#checkActivated(scales);
    const starts = this.#loaded.map(({ invocationTokens }, id) => {
      if (!invocationTokens || scales[id] === 0) return 0;
      const at = lastOf(invocationTokens, prompt);
      if (at < 0) scales[id] = 0;
      return Math.max(0, at - TOKENS_BEFORE);
    });
    return this.#interned(scales, starts);
  }

  /** The adapters of state that is saved or loaded. */
  ofSavedState(): AdapterUse {
    const activated = this.#activated(this.#default)[0];
    if (activated === undefined) return this.use(undefined, []);
    throw new UsageError(
      `state cannot be saved or loaded while requests that do not say apply adapter ${activated}, which is an activated one: set its scale to 0 first`,
    );
  }

  /** The scales of requests that do not say, from now on. */
  setDefault(asked: readonly AdapterScale[]): void {
    const scales = this.#scales(asked);
    this.#checkActivated(scales);
    this.#default = scales;
  }

  /** The activated adapters among those in use. */
  #activated(scales: readonly number[]): number[] {
    return this.#loaded.flatMap(({ id, invocationTokens }) =>
      invocationTokens && Math.fround(scales[id]!) !== 0 ? [id] : [],
    );
  }

  #checkActivated(scales: readonly number[]): void {
    const activated = this.#activated(scales);
    if (activated.length < 2) return;
    throw new UsageError(
      `adapters: got ${activated.length} activated ones (${activated.join(", ")}) for one request, expected at most one: give the others the scale 0`,
    );
  }

  /** An adapter that is not named is not used. */
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

  #interned(numbers: readonly number[], firsts: readonly number[]): AdapterUse {
    if (numbers.every((scale) => Math.fround(scale) === 0)) return NO_ADAPTERS;
    const scales = Float32Array.from(numbers);
    const used = this.#loaded.flatMap(({ fingerprint }, i) => {
      if (scales[i] === 0) return [];
      return [firsts[i] === 0 ? [fingerprint, scales[i]!] : [fingerprint, scales[i]!, firsts[i]!]];
    });
    const key = JSON.stringify(used);
    const known = this.#known.get(key);
    if (known) return known;
    if (this.#known.size >= MOST_CHOICES) this.#known.clear();
    const starts = firsts.some((at) => at > 0) ? Int32Array.from(firsts) : undefined;
    const use = { scales, starts, key };
    this.#known.set(key, use);
    return use;
  }
}

/** The index of the last occurrence of a list in another; -1: there is none. */
function lastOf(list: readonly number[], all: readonly number[]): number {
  for (let at = all.length - list.length; at >= 0; at--) {
    if (list.every((token, i) => token === all[at + i])) return at;
  }
  return -1;
}
