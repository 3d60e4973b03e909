// The plan for each tensor: whether it is quantized, to which type, and the order in the new file. It depends on names
// and shapes alone, before any tensor is read. The rules are llama.cpp's; file-types.ts has them as data.

import { ModelError, UsageError } from "../../base/errors.ts";
import type { Metadata } from "../../base/metadata.ts";
import { bytesFor, type DType } from "../../dtypes/dtype.ts";
import { allDTypes, dtypeByName } from "../../dtypes/table.ts";
import type { ModelFile, TensorInfo } from "../../formats/model-file.ts";
import { isQuantizable } from "../../formats/quantizable.ts";
import {
  type ArchitectureMix,
  architectureMixes,
  type FileType,
  fallbacks,
  largeModels,
  type MixFacts,
  type Role,
  special,
} from "./file-types.ts";
import type { Importance } from "./importance.ts";

export interface PlanOptions {
  type: FileType;
  /** Types by name: the first pattern found in a tensor's name applies. */
  patterns: readonly TypePattern[];
  /** Every matrix gets the same type. */
  pure: boolean;
  leaveOutput: boolean;
  allowRequantize: boolean;
  hasImportance: boolean;
}

export interface TypePattern {
  readonly pattern: RegExp;
  readonly dtype: DType;
  /** As the user wrote it. */
  readonly text: string;
}

export interface PlannedTensor {
  readonly tensor: TensorInfo;
  readonly target: DType;
  readonly targetBytes: number;
  /** Why its type differs from the file's type. */
  readonly note: string | undefined;
}

/** The facts about the model that mixes depend on. */
interface ModelFacts {
  readonly layers: number;
  readonly sharedHeads: number;
  readonly experts: number;
  readonly isLarge: boolean;
  readonly hasImportance: boolean;
  /** The architecture's own mix. */
  readonly own: ArchitectureMix | undefined;
}

const outputName = "output.weight";
const embeddingNames: readonly string[] = ["token_embd.weight", "per_layer_token_embd.weight"];
const valueParts: readonly string[] = ["attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight"];

/** Roles by a part of the name, tested in this order after the ones above. */
const rolesByPart: readonly (readonly [string, Role])[] = [
  ["attn_k.weight", "attnK"],
  ["attn_q.weight", "attnQ"],
  ["attn_output.weight", "attnOutput"],
  ["ffn_up", "ffnUp"],
  ["ffn_gate", "ffnGate"],
  ["ffn_down", "ffnDown"],
];

/** Roles with mixes that depend on the layer. */
const layered: readonly Role[] = ["ffnDown", "ffnGate", "ffnUp"];

export function planTensors(file: ModelFile, options: PlanOptions): PlannedTensor[] {
  const tensors = inFileOrder([...file.tensors.values()]);
  if (tensors.length === 0) {
    throw new ModelError(`${file.name} has no tensors, so there is nothing to quantize`);
  }
  const chooser = new TypeChooser(tensors, modelFacts(file.metadata, options), options);
  const planned = tensors.map((tensor) => {
    const { dtype: target, note } = chooser.choose(tensor);
    checkSource(tensor, target, options, file.name);
    const elems = tensor.shape.reduce((a, b) => a * b, 1);
    return { tensor, target, targetBytes: bytesFor(target, elems), note };
  });
  chooser.checkPatterns();
  return planned;
}

/** Tensors without known importance and with a type that needs an importance matrix; llama.cpp refuses the same ones. */
export function lackImportance(
  plan: readonly PlannedTensor[],
  type: FileType,
  importance: Importance | undefined,
): PlannedTensor[] {
  return plan.filter(({ tensor, target }) => {
    if (tensor.dtype === target) return false;
    const needs =
      target.needsImportance ?? (type.needsImportance === target.name ? "layers" : undefined);
    const isOutside = tensor.name === outputName || embeddingNames.includes(tensor.name);
    if (!needs || (needs === "layers" && isOutside)) return false;
    return importance?.of(tensor, 0) === undefined;
  });
}

/** llama.cpp's order: tensors outside the layers first, then layer by layer, by name. */
function inFileOrder(tensors: readonly TensorInfo[]): TensorInfo[] {
  const layerOf = (name: string) => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1);
  const byName = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
  return tensors.toSorted((a, b) => layerOf(a.name) - layerOf(b.name) || byName(a.name, b.name));
}

function modelFacts(metadata: Metadata, { hasImportance }: PlanOptions): ModelFacts {
  const architecture = metadata.string("general.architecture") ?? "";
  const number = (key: string): number => {
    // Some models have a number for each layer; the first layer's is used.
    const value = metadata.preview(`${architecture}.${key}`, 1)?.value;
    return Number((Array.isArray(value) ? value[0] : value) ?? 0);
  };
  // Layers that are passed several times count as often.
  const layers = number("block_count") * (number("num_loops") || 1);
  const heads = number("attention.head_count");
  const kvHeads = number("attention.head_count_kv") || heads;
  const large = largeModels[architecture];
  const sharedHeads = kvHeads > 0 ? Math.floor(heads / kvHeads) : 0;
  return {
    layers,
    sharedHeads,
    experts: number("expert_count"),
    isLarge: large?.layers === layers && !(large.sharedHeads && heads === kvHeads),
    hasImportance,
    own: architectureMixes[architecture],
  };
}

function checkSource(
  { name, dtype }: TensorInfo,
  target: DType,
  { allowRequantize }: PlanOptions,
  file: string,
): void {
  if (dtype === target || dtype.blockElems === 1 || allowRequantize) return;
  throw new UsageError(
    `quantize: ${file}: tensor "${name}" is ${dtype.name} already, and quantizing it again to ${target.name} loses quality twice. Start from a file in F32, F16 or BF16, or allow it with --allow-requantize`,
  );
}

class TypeChooser {
  readonly #options: PlanOptions;
  readonly #model: ModelFacts;
  readonly #base: DType;
  readonly #embeddingIsOutput: boolean;
  readonly #values: number;
  readonly #seen = new Map<Role, number>();
  readonly #met = new Set<TypePattern>();

  constructor(tensors: readonly TensorInfo[], model: ModelFacts, options: PlanOptions) {
    this.#options = options;
    this.#model = model;
    this.#base = dtypeByName(options.type.base)!;
    this.#embeddingIsOutput = !tensors.some(({ name }) => name === outputName);
    this.#values = tensors.filter(({ name }) => roleOf(name) === "attnV").length;
  }

  choose(tensor: TensorInfo): { dtype: DType; note: string | undefined } {
    const { name } = tensor;
    const base = this.#base;
    const asked = this.#options.patterns.find(({ pattern }) => pattern.test(name));
    if (asked) this.#met.add(asked);
    if (!this.#isQuantized(tensor)) return { dtype: tensor.dtype, note: undefined };
    if (asked) return withWholeBlocks(tensor, asked.dtype, `as "${asked.text}" says`);
    const isFloat = base.blockElems === 1;
    if (isFloat || this.#options.pure) return withWholeBlocks(tensor, base, undefined);
    return withWholeBlocks(tensor, dtypeByName(this.#mixed(tensor))!, undefined);
  }

  /** A pattern without a match is a typo, and the file would not be the one that the user wants. */
  checkPatterns(): void {
    const unmet = this.#options.patterns.filter((pattern) => !this.#met.has(pattern));
    if (unmet.length === 0) return;
    const list = unmet.map(({ text }) => `"${text}"`).join(", ");
    throw new UsageError(
      `quantize: no tensor's name matches ${list}. "lantern inspect" lists the names; a pattern is a regular expression that may match any part of a name`,
    );
  }

  #isQuantized(tensor: TensorInfo): boolean {
    if (this.#options.leaveOutput && tensor.name === outputName) return false;
    return isQuantizable(tensor);
  }

  /** The type's name, by role and layer. */
  #mixed({ name, shape }: TensorInfo): string {
    const { type } = this.#options;
    const { own } = this.#model;
    const role = roleOf(name);
    if (role === "output" || (role === "embedding" && this.#embeddingIsOutput)) {
      if (shape.at(-1)! % this.#base.blockElems !== 0) return special.outputOddRows;
      if (own?.output !== undefined) return own.output;
      return type.base === special.outputOddRows ? type.base : (type.output ?? special.output);
    }
    const facts = this.#facts(role, name, shape);
    const mix = own?.types[type.name]?.[role] ?? type.mix?.[role];
    const chosen = mix?.(facts) ?? type.base;
    if (type.mixIsFinal) return chosen;
    if (role === "attnV") return this.#values8(this.#largeModel(chosen));
    if (role === "attnK") return this.#values8(chosen);
    const eight = this.#model.experts === 8;
    return role === "attnOutput" && eight ? (type.expertsAttnOutput ?? type.base) : chosen;
  }

  #values8(chosen: string): string {
    return this.#model.experts === 8 ? special.experts : chosen;
  }

  #largeModel(chosen: string): string {
    const { from, to } = special.largeModelValues;
    return this.#model.isLarge && (from as readonly string[]).includes(chosen) ? to : chosen;
  }

  #facts(role: Role, name: string, shape: readonly number[]): MixFacts {
    const { layers, sharedHeads, experts, hasImportance } = this.#model;
    const matrices = shape.slice(0, -2).reduce((a, b) => a * b, 1);
    const counted = this.#seen.get(role) ?? 0;
    this.#seen.set(role, counted + 1);
    const rest = { counted, matrices, sharedHeads, experts, hasImportance };
    if (role === "attnV") return { layer: counted, layers: this.#values, ...rest };
    if (!layered.includes(role)) return { layer: 0, layers, ...rest };
    // Experts may be separate tensors: several of them belong to one layer.
    const layer = experts > 1 ? Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? 0) : counted;
    return { layer, layers, ...rest };
  }
}

function roleOf(name: string): Role {
  if (name === outputName) return "output";
  if (embeddingNames.includes(name)) return "embedding";
  if (valueParts.some((part) => name.includes(part))) return "attnV";
  return rolesByPart.find(([part]) => name.includes(part))?.[1] ?? "other";
}

/** The type, or its fallback if rows are not whole blocks of it. */
function withWholeBlocks(
  { name, shape }: TensorInfo,
  wanted: DType,
  note: string | undefined,
): { dtype: DType; note: string | undefined } {
  const cols = shape.at(-1)!;
  const fits = (dtype: DType) => cols % dtype.blockElems === 0;
  if (!wanted.quantize) {
    const known = allDTypes().filter(({ quantize }) => quantize);
    throw new UsageError(
      `quantize: tensor "${name}": Lantern can read ${wanted.name} but not write it. It writes ${known.map((dtype) => dtype.name).join(", ")}`,
    );
  }
  if (fits(wanted)) return { dtype: wanted, note };
  const fallback = dtypeByName(fallbacks[wanted.name] ?? special.lastResort)!;
  const dtype = fits(fallback) ? fallback : dtypeByName(special.lastResort)!;
  return {
    dtype,
    note: `its rows of ${cols} values are not a multiple of the ${wanted.blockElems} values in a block of ${wanted.name}`,
  };
}
