// The tensor types that a KV cache may have, once: options, flags, requests and checks take them from here. A type that is
// added here needs a format in src/kernels/ops/attention/kv-format.ts.

export const kvTypes = ["f32", "f16", "q8_0"] as const;

export type KvType = (typeof kvTypes)[number];

/** What a model is opened with unless it is asked for another. */
export const defaultKvType: KvType = "f16";

/** For messages. */
export const kvTypesText: string = `${kvTypes.slice(0, -1).join(", ")} or ${kvTypes.at(-1)}`;

export function isKvType(name: unknown): name is KvType {
  return kvTypes.some((type) => type === name);
}
