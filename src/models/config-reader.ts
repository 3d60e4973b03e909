// Access to the "<architecture>.*" keys of a model's metadata with a check on every value, so that a hostile or foreign file is
// refused with the key, its value and the expected one.

import { ModelError } from "../base/errors.ts";
import type { Metadata } from "../base/metadata.ts";

/** The range of real models' positive numbers: 1e-12 for some epsilons, 4e9 for some bases of rope. */
const POSITIVE: { readonly least: number; readonly most: number } = { least: 1e-30, most: 1e15 };

const ADVICE =
  ". The file is damaged, or its converter is unknown here: download or convert it again";

export class ConfigReader {
  readonly metadata: Metadata;
  readonly architecture: string;

  constructor(metadata: Metadata, architecture: string) {
    this.metadata = metadata;
    this.architecture = architecture;
  }

  number(key: string): number | undefined {
    const value = this.metadata.number(`${this.architecture}.${key}`);
    // Kernels compute with float32, in which a larger float64 is infinite.
    if (value !== undefined && !Number.isFinite(Math.fround(value))) {
      this.fail(key, value, "a finite number");
    }
    return value;
  }

  string(key: string): string | undefined {
    return this.metadata.string(`${this.architecture}.${key}`);
  }

  integer(key: string, max: number): number {
    return this.#checkInteger(key, this.number(key), max);
  }

  integerOr(key: string, fallback: number, max: number): number {
    return this.#checkInteger(key, this.number(key) ?? fallback, max);
  }

  /** An integer from 0 to `max`; 0 where the file has no such key. */
  count(key: string, max: number): number {
    return this.#checkInteger(key, this.number(key) ?? 0, max, 0);
  }

  positive(key: string): number {
    const value = this.number(key);
    const { least, most } = POSITIVE;
    if (value === undefined || value <= 0) this.fail(key, value, "a number above 0");
    if (value < least || value > most) this.fail(key, value, `a number from ${least} to ${most}`);
    return value;
  }

  /** A number from `least` to `most`; undefined: the file has no such key. */
  between(key: string, least: number, most: number): number | undefined {
    const value = this.number(key);
    if (value !== undefined && (value < least || value > most)) {
      this.fail(key, value, `a number from ${least} to ${most}`);
    }
    return value;
  }

  boolean(key: string): boolean | undefined {
    return this.metadata.boolean(`${this.architecture}.${key}`);
  }

  positiveOr(key: string, fallback: number): number {
    return this.number(key) === undefined ? fallback : this.positive(key);
  }

  /** An array of `count` integers from 0 to `max`; undefined: the file has no such key. */
  integers(key: string, count: number, max: number): number[] | undefined {
    const full = `${this.architecture}.${key}`;
    if (!this.metadata.has(full)) return undefined;
    const length = this.metadata.arrayLength(full);
    if (length !== count) this.fail(key, `${length ?? "no"} values`, `${count} integers`);
    const values = this.metadata.numbers(full)!;
    return values.map((value, i) => this.#checkInteger(`${key}[${i}]`, value, max, 0));
  }

  /** One integer for each layer: the file has an array, or one number for all layers. */
  integersPerLayer(key: string, layers: number, max: number, min = 1): number[] {
    if (!this.#isArray(key)) {
      return new Array<number>(layers).fill(this.#checkInteger(key, this.number(key), max, min));
    }
    this.#checkLength(key, layers);
    const values = this.metadata.numbers(`${this.architecture}.${key}`)!.slice(0, layers);
    return values.map((value, layer) => this.#checkInteger(`${key}[${layer}]`, value, max, min));
  }

  /**
   * A number from -most to most for each layer, under a key without the architecture's name: an array, or one number for all
   * layers.
   */
  generalNumbersPerLayer(key: string, layers: number, most: number): number[] {
    const length = this.metadata.preview(key, 0)?.length; // undefined: no array
    const one = length === undefined ? this.metadata.number(key) : undefined;
    if (length !== undefined && length !== layers) {
      throw new ModelError(
        `model: ${key}: got ${length} values, expected one for each of ${layers} layers${ADVICE}`,
      );
    }
    const values =
      length === undefined
        ? new Array<number | undefined>(layers).fill(one)
        : this.metadata.numbers(key)!;
    return values.map((value, layer) => {
      if (value !== undefined && Math.abs(value) <= most) return value;
      throw new ModelError(
        `model: ${key}: got ${value ?? "nothing"} for layer ${layer}, expected a number from ${-most} to ${most}${ADVICE}`,
      );
    });
  }

  /**
   * A flag for each layer: the file has an array of bools, or of 0 and 1, or a number p. With p, the flag is set for all but
   * the last of every p layers (0: for all layers), or but the first. `period` is p where the file has no such key.
   */
  flagsPerLayer(
    key: string,
    layers: number,
    period: number,
    without: "first" | "last" = "last",
  ): boolean[] {
    if (this.#isArray(key)) {
      this.#checkLength(key, layers);
      const full = `${this.architecture}.${key}`;
      if (this.metadata.preview(full, 0)?.type === "array<bool>") {
        return this.metadata.booleans(full)!.slice(0, layers);
      }
      return this.integersPerLayer(key, layers, 1, 0).map((flag) => flag === 1);
    }
    const found = this.number(key);
    const every = found === undefined ? period : this.#checkInteger(key, found, layers + 1, 0);
    const left = without === "first" ? 0 : every - 1;
    return Array.from({ length: layers }, (_, i) => every === 0 || i % every !== left);
  }

  /**
   * Tokens of each layer's window; undefined: the layer has none. `period` and `without` as in flagsPerLayer(). `fallback`: the
   * window if the file has none, for a family with windows in all layers.
   */
  windowsPerLayer(
    layers: number,
    period: number,
    max: number,
    fallback = 0,
    without: "first" | "last" = "last",
  ): (number | undefined)[] {
    const key = "attention.sliding_window";
    const min = fallback > 0 ? 1 : 0;
    const window = this.#checkInteger(key, this.number(key) ?? fallback, max, min);
    if (window === 0) return new Array<undefined>(layers).fill(undefined);
    return this.flagsPerLayer(`${key}_pattern`, layers, period, without).map((has) =>
      has ? window : undefined,
    );
  }

  fail(key: string, got: unknown, expected: string): never {
    throw new ModelError(
      `model: ${this.architecture}.${key}: got ${got === undefined ? "nothing" : got}, expected ${expected}${ADVICE}`,
    );
  }

  /** Does not decode the array. */
  #isArray(key: string): boolean {
    return this.metadata.preview(`${this.architecture}.${key}`, 0)?.length !== undefined;
  }

  /** Called before an array is decoded: a hostile one may be as long as the file. */
  #checkLength(key: string, layers: number): void {
    const length = this.metadata.arrayLength(`${this.architecture}.${key}`);
    // Layers that predict further tokens may have values, too, which are not read.
    const stored = layers + (this.number("nextn_predict_layers") ?? 0);
    if (length === layers || length === stored) return;
    this.fail(key, `${length} values`, `one for each of ${layers} layers`);
  }

  #checkInteger(key: string, value: number | undefined, max: number, min = 1): number {
    if (value === undefined || !Number.isInteger(value) || value < min || value > max) {
      this.fail(key, value, `an integer from ${min} to ${max}`);
    }
    return value;
  }
}
