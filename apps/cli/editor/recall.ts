// Earlier texts, as Up and Down bring them back: the texts, the current index, and the unsent changes.

export class Recall {
  /** The last is the newest. */
  readonly texts: string[];
  #at: number;
  /** Texts as they were left, by index; the index behind the last is the text that is being typed. */
  readonly #left = new Map<number, string>();

  constructor(texts: readonly string[]) {
    this.texts = [...texts];
    this.#at = this.texts.length;
  }

  /** One text further; undefined: there is none. `current`: the text that is left. */
  move(steps: -1 | 1, current: string): string | undefined {
    const to = this.#at + steps;
    if (to < 0 || to > this.texts.length) return undefined;
    this.#left.set(this.#at, current);
    this.#at = to;
    return this.#left.get(to) ?? this.texts[to] ?? "";
  }

  /** A text was sent; false: it equals the last one or is empty, and is not kept. */
  add(text: string): boolean {
    this.#left.clear();
    const isNew = text.trim() !== "" && text !== this.texts.at(-1);
    if (isNew) this.texts.push(text);
    this.#at = this.texts.length;
    return isNew;
  }
}
