// Ids of texts. A map of a whole vocabulary takes 20 ms to make for 32,000 tokens, and a short prompt looks up a few hundred: the
// texts are divided into parts by length and two characters, and the map of a part is made when it is first asked.

const PARTS = 1024; // 2^n

export class TextIndex {
  readonly #texts: readonly string[];
  readonly #maps: (Map<string, number> | undefined)[] = new Array(PARTS).fill(undefined);
  /** The last id of each part, and the id before each one in its part; -1: none. */
  readonly #last = new Int32Array(PARTS).fill(-1);
  readonly #before: Int32Array;

  /** The texts must not change any more. */
  constructor(texts: readonly string[]) {
    this.#texts = texts;
    const last = this.#last;
    const before = new Int32Array(texts.length);
    for (let id = 0; id < before.length; id++) {
      const part = partOf(texts[id]!);
      before[id] = last[part]!;
      last[part] = id;
    }
    this.#before = before;
  }

  /** The last id that has this text. */
  id(text: string): number | undefined {
    const part = partOf(text);
    this.#maps[part] ??= this.#mapOf(part);
    return this.#maps[part].get(text);
  }

  #mapOf(part: number): Map<string, number> {
    const map = new Map<string, number>();
    for (let id = this.#last[part]!; id >= 0; id = this.#before[id]!) {
      const text = this.#texts[id]!;
      if (!map.has(text)) map.set(text, id);
    }
    return map;
  }
}

/** charCodeAt() of an empty text is NaN, which counts as 0. */
function partOf(text: string): number {
  const { length } = text;
  const ends = text.charCodeAt(length >> 1) * 31 + text.charCodeAt(length - 1) * 7;
  return (ends + length * 131) & (PARTS - 1);
}
