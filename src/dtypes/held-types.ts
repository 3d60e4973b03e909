// The types that a model's wider float matrices may be held in, once: options, flags, requests and checks take them from
// here. Its only entry is F16: src/formats/half-weights.ts makes it.

export const heldTypes = ["f16"] as const;

export type HeldType = (typeof heldTypes)[number];

/** For messages. */
export const heldTypesText: string = heldTypes.map((type) => `"${type}"`).join(" or ");

export function isHeldType(name: unknown): name is HeldType {
  return heldTypes.some((type) => type === name);
}
