// Text that arrives in pieces, and the small steps of reading it. Readers are generators: each `yield` means "more text, please",
// so that a reader is written as if the whole text were there, and every character is looked at once.

/** A reader that ends with T. */
export type Reading<T> = Generator<void, T, void>;

export class Source {
  #text = "";
  #at = 0;
  #isEnded = false;
  #recorded: string | undefined;

  /** Everything that was read is forgotten from time to time, so that long answers cost no more than short ones. */
  push(text: string): void {
    if (this.#at > 4096) {
      this.#text = this.#text.slice(this.#at);
      this.#at = 0;
    }
    this.#text += text;
  }

  end(): void {
    this.#isEnded = true;
  }

  /** No text is left, and none will come. */
  get isDone(): boolean {
    return this.#isEnded && this.#at === this.#text.length;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** The text that has come and was not read. */
  get rest(): string {
    return this.#text.slice(this.#at);
  }

  take(count: number): string {
    const taken = this.#text.slice(this.#at, this.#at + count);
    this.#at += taken.length;
    if (this.#recorded !== undefined) this.#recorded += taken;
    return taken;
  }

  /** From now on, text that is read is kept for `recorded`. */
  record(): void {
    this.#recorded = "";
  }

  /** The text read since `record`, which ends. */
  recorded(): string {
    const text = this.#recorded ?? "";
    this.#recorded = undefined;
    return text;
  }

  startsWith(text: string): boolean {
    return this.#text.startsWith(text, this.#at);
  }

  get length(): number {
    return this.#text.length - this.#at;
  }

  /** The character there; "" if it has not come. */
  charAt(index: number): string {
    return this.#text[this.#at + index] ?? "";
  }
}

/** Waits until `count` characters are there, or the text has ended; says whether they are. */
export function* has(source: Source, count: number): Reading<boolean> {
  while (source.length < count && !source.isEnded) yield;
  return source.length >= count;
}

/** Whether `literal` comes next; it is not read. Waits only as long as it still might. */
export function* follows(source: Source, literal: string): Reading<boolean> {
  while (source.length < literal.length && !source.isEnded) {
    if (!literal.startsWith(source.rest)) return false;
    yield;
  }
  return source.startsWith(literal);
}

/** Reads `literal` if it comes next. */
export function* accept(source: Source, literal: string): Reading<boolean> {
  if (!(yield* follows(source, literal))) return false;
  source.take(literal.length);
  return true;
}

const isSpace = (char: string): boolean =>
  char === " " || char === "\n" || char === "\t" || char === "\r";

/** Reads whitespace and gives it back. */
export function* space(source: Source): Reading<string> {
  let read = "";
  while (yield* has(source, 1)) {
    if (!isSpace(source.charAt(0))) break;
    read += source.take(1);
  }
  return read;
}

/** Reads a marker as the template has it, with more or less whitespace around it. Nothing is read if it does not come. */
export function* acceptMarker(source: Source, marker: string): Reading<boolean> {
  const core = marker.trim();
  if (core === "") return true;
  const spaces = yield* spacesAhead(source);
  while (source.length < spaces + core.length && !source.isEnded) {
    if (!core.startsWith(source.rest.slice(spaces))) return false;
    yield;
  }
  if (!source.rest.startsWith(core, spaces)) return false;
  source.take(spaces + core.length);
  // Whitespace of the marker is part of it; other whitespace belongs to the text after it.
  const tail = marker.slice(marker.trimEnd().length);
  for (const char of tail) if (!(yield* accept(source, char))) break;
  return true;
}

function* spacesAhead(source: Source): Reading<number> {
  let count = 0;
  while (yield* has(source, count + 1)) {
    if (!isSpace(source.charAt(count))) break;
    count++;
  }
  return count;
}

/**
 * Reads text up to the first of `stops` and gives it to `emit` piece by piece; text that may be the start of a stop is held back.
 * Returns the stop that comes next (it is not read); undefined: the text has ended. Of two stops at one position, the first in the
 * list counts.
 */
export function* upTo(
  source: Source,
  stops: readonly string[],
  emit: (text: string) => void,
): Reading<string | undefined> {
  for (;;) {
    const text = source.rest;
    let at = text.length;
    let found: string | undefined;
    for (const stop of stops) {
      const place = text.indexOf(stop);
      if (place >= 0 && place < at) {
        at = place;
        found = stop;
      }
    }
    const held = heldBack(text, stops);
    // An earlier position at which a stop may still begin decides later.
    const certain = source.isEnded ? at : Math.min(at, text.length - held);
    if (certain > 0) emit(source.take(certain));
    if (found !== undefined && certain === at) {
      // A longer stop may still come at the same position.
      const rest = source.rest;
      const isOpen = (stop: string): boolean => stop.length > rest.length && stop.startsWith(rest);
      if (source.isEnded || !stops.some(isOpen)) return found;
    }
    if (source.isEnded) return undefined;
    yield;
  }
}

/** The number of characters at the end of `text` that may be the start of one of `stops`. */
function heldBack(text: string, stops: readonly string[]): number {
  let most = 0;
  for (const stop of stops) {
    for (let count = Math.min(stop.length - 1, text.length); count > most; count--) {
      if (text.endsWith(stop.slice(0, count))) most = count;
    }
  }
  return most;
}
