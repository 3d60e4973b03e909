// The tensor types that a KV cache may have, once: options, flags, requests and checks take them from here. A type that is
// added here needs a format in src/kernels/ops/attention/kv-formats.ts. Keys and values have one type, or one each.

import type { DType } from "./dtype.ts";
import { dtypeByName } from "./table.ts";

export const kvTypes = [
  "f32",
  "f16",
  "bf16",
  "q8_0",
  "q4_0",
  "q4_1",
  "q5_0",
  "q5_1",
  "iq4_nl",
] as const;

export type KvType = (typeof kvTypes)[number];

/** A type for keys and one for values. */
export interface KvTypePair {
  readonly k: KvType;
  readonly v: KvType;
}

/** The same as tensor types. */
export interface KvPair {
  readonly k: DType;
  readonly v: DType;
}

/** The types of a cache: one for keys and values, or a pair. */
export type KvDType = DType | KvPair;

/** The default KV type of a model. */
export const defaultKvType: KvType = "f16";

/** Holds every key and value that a model can compute. */
export const widestKvType: KvType = "f32";

/** For messages. */
export const kvTypesText: string = `${kvTypes.slice(0, -1).join(", ")} or ${kvTypes.at(-1)}`;

export function isKvType(name: unknown): name is KvType {
  return kvTypes.some((type) => type === name);
}

export function isKvTypePair(value: unknown): value is KvTypePair {
  if (typeof value !== "object" || value === null) return false;
  const { k, v, ...others } = value as Partial<Record<"k" | "v", unknown>>;
  return isKvType(k) && isKvType(v) && Object.keys(others).length === 0;
}

/** The tensor types of an option. */
export function kvDTypeOf(type: KvType | KvTypePair): KvDType {
  if (typeof type === "string") return dtypeByName(type)!;
  const { k, v } = type;
  return k === v ? dtypeByName(k)! : { k: dtypeByName(k)!, v: dtypeByName(v)! };
}

export function kvPair(kv: KvDType): KvPair {
  return "k" in kv ? kv : { k: kv, v: kv };
}

/** "f16", or "q8_0/q4_0" where keys and values differ. */
export function kvTypeName(kv: KvDType): string {
  const { k, v } = kvPair(kv);
  return k.name === v.name ? k.name : `${k.name}/${v.name}`;
}

/** The quantizer of a cache's rows: the one that ggml uses while a model runs. */
export function kvQuantizer(dtype: DType): NonNullable<DType["quantizeRow"]> {
  return (dtype.quantizeRow ?? dtype.quantize)!;
}
