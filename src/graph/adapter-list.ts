// The rows of a batch that use an adapter, and its scale in each: Batch.adapters has one list for tokens and one for outputs.

export class AdapterList {
  /** Rows that use it. */
  count = 0;
  /** The rows that use it, in order: [count]. */
  readonly rows: Int32Array;
  /** The index of every row in `rows`; -1: it does not use the adapter. */
  readonly places: Int32Array;
  /** The scale of every row; 0: it does not use the adapter. */
  readonly scales: Float32Array;

  constructor(most: number) {
    this.rows = new Int32Array(most);
    this.places = new Int32Array(most);
    this.scales = new Float32Array(most);
  }

  /** Adds a row, which comes after those that were added before. */
  add(row: number, scale: number): void {
    this.scales[row] = scale;
    this.places[row] = scale === 0 ? -1 : this.count;
    if (scale !== 0) this.rows[this.count++] = row;
  }
}
