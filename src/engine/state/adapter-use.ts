// Which adapters a sequence uses, how strongly, and from which token on. State that was computed with one choice is useless for another
// beyond the tokens where both are the same, so every lookup of state compares choices.

export interface AdapterUse {
  /** The scale by the number of the adapter; 0: it is not used. undefined: none is used. */
  readonly scales: Float32Array | undefined;
  /** The first position that each adapter changes, by its number (activated adapters). undefined: all apply from the first token on. */
  readonly starts: Int32Array | undefined;
  /** The choice's name in the keys of stored state; "": no adapter. */
  readonly key: string;
}

export const NO_ADAPTERS: AdapterUse = { scales: undefined, starts: undefined, key: "" };

/** The number of first tokens with the same state in both. */
export function sharedTokens(one: AdapterUse, other: AdapterUse): number {
  if (one.key === other.key) return Infinity;
  const count = (one.scales ?? other.scales)?.length ?? 0;
  let shared = Infinity;
  for (let i = 0; i < count; i++) {
    const [a, b] = [one.scales?.[i] ?? 0, other.scales?.[i] ?? 0];
    const [from, otherFrom] = [one.starts?.[i] ?? 0, other.starts?.[i] ?? 0];
    if (a === b && from === otherFrom) continue;
    if (a !== 0) shared = Math.min(shared, from);
    if (b !== 0) shared = Math.min(shared, otherFrom);
  }
  return shared;
}
