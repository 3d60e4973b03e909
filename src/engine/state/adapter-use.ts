// Which adapters a sequence uses, and how strongly. State that was computed with one choice is of no use for another, so what finds
// state again compares choices: the same choice is the same object.

export interface AdapterUse {
  /** By the number of the adapter; 0: it is not used. undefined: none is. */
  readonly scales: Float32Array | undefined;
  /** What names the choice in the keys of stored state; "": no adapter. */
  readonly key: string;
}

export const NO_ADAPTERS: AdapterUse = { scales: undefined, key: "" };
