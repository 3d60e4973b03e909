// The tokens whose logits a sampler adjusts before it chooses one: penalties and biases change few, and the sampler knows which. A backend
// that finds the best logits searches all other tokens, and always returns the logits of adjusted tokens beside them. So the sampler
// has all logits that it would keep of a whole row.

/** More are not listed: whole rows of logits are read instead. */
export const MOST_ADJUSTED = 240;

/** The most that a backend gives: those that are listed, and tokens that a device draws before the host knows them. */
export const ADJUSTED_ROOM = 256;

export class AdjustedList {
  count = 0;
  /** Each token once: [count]. */
  readonly ids: Int32Array = new Int32Array(MOST_ADJUSTED);
  /** Occurrences in the text that penalties look at; 0: penalties do not change it: [count]. */
  readonly occurrences: Int32Array = new Int32Array(MOST_ADJUSTED);
  /** The bias that is added to its logit first: [count]. */
  readonly biases: Float32Array = new Float32Array(MOST_ADJUSTED);

  /** Adds a token that is not there yet; false: there is no room. */
  add(id: number, occurrences: number, bias: number): boolean {
    if (this.count === MOST_ADJUSTED) return false;
    this.ids[this.count] = id;
    this.occurrences[this.count] = occurrences;
    this.biases[this.count++] = bias;
    return true;
  }

  has(id: number): boolean {
    for (let i = 0; i < this.count; i++) if (this.ids[i] === id) return true;
    return false;
  }
}
