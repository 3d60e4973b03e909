// Access to the "<architecture>.*" keys of a model's metadata with a check on every value, so that a hostile or foreign
// file is refused with the key, what it held and what was expected.

import { ModelError } from "../base/errors.ts";
import type { Metadata } from "../base/metadata.ts";

export class ConfigReader {
  readonly metadata: Metadata;
  readonly architecture: string;

  constructor(metadata: Metadata, architecture: string) {
    this.metadata = metadata;
    this.architecture = architecture;
  }

  number(key: string): number | undefined {
    const value = this.metadata.number(`${this.architecture}.${key}`);
    if (value !== undefined && !Number.isFinite(value)) this.fail(key, value, "a finite number");
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

  positive(key: string): number {
    const value = this.number(key);
    if (value === undefined || value <= 0) this.fail(key, value, "a number above 0");
    return value;
  }

  positiveOr(key: string, fallback: number): number {
    return this.number(key) === undefined ? fallback : this.positive(key);
  }

  /** One for each layer: the file has an array, or a number that is all layers'. */
  integersPerLayer(key: string, layers: number, max: number): number[] {
    const full = `${this.architecture}.${key}`;
    if (this.metadata.arrayLength(full) === undefined) {
      return new Array<number>(layers).fill(this.integer(key, max));
    }
    const values = this.metadata.numbers(full)!;
    if (values.length !== layers) {
      this.fail(key, `${values.length} values`, `one for each of ${layers} layers`);
    }
    return values.map((value) => this.#checkInteger(key, value, max));
  }

  fail(key: string, got: unknown, expected: string): never {
    throw new ModelError(
      `model: ${this.architecture}.${key}: got ${got === undefined ? "nothing" : got}, expected ${expected}`,
    );
  }

  #checkInteger(key: string, value: number | undefined, max: number): number {
    if (value === undefined || !Number.isInteger(value) || value < 1 || value > max) {
      this.fail(key, value, `an integer from 1 to ${max}`);
    }
    return value;
  }
}
