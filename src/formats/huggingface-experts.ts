// Presents the experts of a Hugging Face folder as GGUF does: one tensor with a matrix for each expert. A folder has
// one tensor per expert, or fused ones with the matrices of several GGUF tensors. Nothing is read or copied here: the
// joined tensor records where its parts are.

import { FormatError } from "../base/errors.ts";
import { bytesFor } from "../dtypes/dtype.ts";
import { placeOf } from "./huggingface-place.ts";
import type { TensorInfo, TensorPart } from "./model-file.ts";

/** A folder's names for expert tensors, after "layers.N.". */
export interface ExpertNames {
  /** The common prefix: "mlp.experts". A folder uses one of these. */
  readonly stems: readonly string[];
  /** a stem + ".E." + key for expert E, with ".weight" or ".bias", becomes "blk.N." + value. */
  readonly each: Readonly<Record<string, string>>;
  /** A stem + "." + key: [experts, rows, cols]; the rows of an expert are the rows of these tensors, one after the other. */
  readonly fused: Readonly<Record<string, readonly string[]>>;
}

/** Collects the expert tensors, one by one. */
export class ExpertTensors {
  readonly #names: ExpertNames;
  /** By GGUF's name, then by expert. */
  readonly #each = new Map<string, Map<number, TensorInfo>>();
  readonly #joined = new Map<string, TensorInfo>();

  constructor(names: ExpertNames) {
    this.#names = names;
  }

  /** Takes a tensor of one expert or of all; returns false for any other tensor. */
  add(tensor: TensorInfo): boolean {
    const place = placeOf(tensor.name);
    const stem = this.#names.stems.find((each) => place.rest.startsWith(`${each}.`));
    if (place.layer === undefined || stem === undefined) return false;
    const prefix = `blk.${place.layer}.`;
    const rest = place.rest.slice(stem.length + 1);
    return this.#addFused(tensor, prefix, rest) || this.#addEach(tensor, prefix, rest);
  }

  /** The joined tensors under GGUF's names. One error lists everything that is missing or does not fit. */
  tensors(): ReadonlyMap<string, TensorInfo> {
    for (const [name, experts] of this.#each) this.#join(name, experts);
    return this.#joined;
  }

  #addEach(tensor: TensorInfo, prefix: string, rest: string): boolean {
    const match = /^(\d{1,6})\.(.+)\.(weight|bias)$/.exec(rest);
    const renamed = match && lookUp(this.#names.each, match[2]!);
    if (!match || renamed === undefined) return false;
    const name = `${prefix}${renamed}.${match[3]}`;
    const experts = this.#each.get(name) ?? new Map<number, TensorInfo>();
    this.#each.set(name, experts);
    const expert = Number(match[1]);
    if (experts.has(expert)) throw wrong(tensor, `a second tensor for ${name}`, "one");
    experts.set(expert, tensor);
    return true;
  }

  #addFused(tensor: TensorInfo, prefix: string, rest: string): boolean {
    const names = lookUp(this.#names.fused, rest);
    if (!names) return false;
    const { shape, dtype, file, offset } = tensor;
    const [experts, rows, cols] = shape as [number, number, number];
    if (shape.length !== 3 || rows % names.length !== 0) {
      const expected = `[experts, ${names.length} times as many rows, columns]`;
      throw wrong(tensor, `shape [${shape}]`, expected);
    }
    const ownRows = rows / names.length;
    const rowBytes = bytesFor(dtype, cols);
    names.forEach((stem, i) => {
      const parts = Array.from({ length: experts }, (_, expert) => ({
        file,
        offset: offset + (expert * rows + i * ownRows) * rowBytes,
      }));
      const name = `${prefix}${stem}.weight`;
      this.#put(name, tensor, [experts, ownRows, cols], ownRows * rowBytes, parts);
    });
    return true;
  }

  #join(name: string, experts: ReadonlyMap<number, TensorInfo>): void {
    const [first] = experts.values();
    const parts = Array.from({ length: experts.size }, (_, expert): TensorPart => {
      const tensor = experts.get(expert);
      if (!tensor) {
        const got = `${experts.size} experts for ${name}, and none with number ${expert}`;
        throw wrong(first!, got, "experts 0, 1, 2, ...");
      }
      const { shape, dtype, file, offset } = tensor;
      if (dtype !== first!.dtype || shape.join() !== first!.shape.join()) {
        const expected = `${first!.dtype.name} [${first!.shape}], as another expert has it`;
        throw wrong(tensor, `${dtype.name} [${shape}]`, expected);
      }
      return { file, offset };
    });
    this.#put(name, first!, [parts.length, ...first!.shape], first!.byteLength, parts);
  }

  #put(
    name: string,
    tensor: TensorInfo,
    shape: readonly number[],
    partBytes: number,
    parts: readonly TensorPart[],
  ): void {
    if (this.#joined.has(name)) throw wrong(tensor, `a second tensor for ${name}`, "one");
    const byteLength = partBytes * parts.length;
    this.#joined.set(name, { ...tensor, name, shape, byteLength, ...parts[0]!, parts });
  }
}

function lookUp<T>(table: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(table, key) ? table[key] : undefined;
}

function wrong({ file, name }: TensorInfo, got: string, expected: string): FormatError {
  return new FormatError("huggingface", {
    file,
    field: `tensor ${JSON.stringify(name)}`,
    got,
    expected,
  });
}
