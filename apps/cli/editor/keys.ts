// Decodes a terminal's input into keys and pasted text. Pure: reads go in, events come out; where only time decides (is it the
// Escape key, or does more follow?) the caller calls flush() a while later.
//
// A terminal that does not mark pastes sends them as if they were typed, with Enter at the end of every line. A paste arrives at
// once, which no typist can do: such lines become text, so that nothing is sent before the user has seen it.

export type InputEvent =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "paste"; readonly text: string }
  /** "left", "ctrl-a", "alt-enter": modifiers in the order ctrl, alt, shift. */
  | { readonly kind: "key"; readonly key: string }
  /** The terminal knows the keyboard protocol of kitty, which tells Shift+Enter from Enter. */
  | { readonly kind: "kitty" };

const pasteEnd = "\x1b[201~";
/** Longer ones are no sequences. */
const longestSequence = 256;

const finals: ReadonlyMap<string, string> = new Map([
  ["A", "up"],
  ["B", "down"],
  ["C", "right"],
  ["D", "left"],
  ["F", "end"],
  ["H", "home"],
  ["M", "enter"], // of the keypad
]);

const numbered: ReadonlyMap<string, string> = new Map([
  ["1", "home"],
  ["3", "delete"],
  ["4", "end"],
  ["5", "page-up"],
  ["6", "page-down"],
  ["7", "home"],
  ["8", "end"],
]);

/** Code points of keys without a character, as kitty sends them. */
const coded: ReadonlyMap<number, string> = new Map([
  [9, "tab"],
  [13, "enter"],
  [27, "escape"],
  [127, "backspace"],
  [57414, "enter"],
  [57417, "left"],
  [57418, "right"],
  [57419, "up"],
  [57420, "down"],
  [57423, "home"],
  [57424, "end"],
  [57426, "delete"],
]);
const keypad = "0123456789./*-+";
const keypadFirst = 57399;

const controls: ReadonlyMap<string, string> = new Map([
  ["\r", "enter"],
  ["\t", "tab"],
  ["\x7f", "backspace"],
  ["\b", "backspace"],
  ["\x1c", "ctrl-\\"],
  ["\x1f", "ctrl-_"],
]);

// biome-ignore-start lint/suspicious/noControlCharactersInRegex: the patterns look for control characters
const control = /[\x00-\x1f\x7f]/;
const csi = /^\x1b\[([0-?]*)[ -/]*([@-~])/;
const linuxConsole = /^\x1b\[\[[A-E]/;
const unfinishedCsi = /^\x1b(?:\[\[?[0-?]*[ -/]*)?$/;
/** Answers of a terminal to another program's queries. */
const answer = /^\x1b[\]P_^X]/;
const answerEnd = /\x07|\x1b\\/;
// biome-ignore-end lint/suspicious/noControlCharactersInRegex: see above

export class KeyDecoder {
  #rest = "";
  #isPaste = false;
  #endedWithReturn = false;
  /** A burst that has arrived at once continues until flush(). */
  #isBurst = false;
  #hasLines = false;
  #heldEnter = false;

  /** The decision that flush() would make: the caller chooses the time-out. */
  get waitsFor(): "rest of a sequence" | "rest of a paste" | undefined {
    if (this.#rest !== "" && !this.#isPaste) return "rest of a sequence";
    return this.#isBurst ? "rest of a paste" : undefined;
  }

  /** More of a paste is expected: the text so far need not be shown yet. */
  get isPasting(): boolean {
    return this.#isPaste || this.#isBurst;
  }

  push(chunk: string): InputEvent[] {
    const events: InputEvent[] = [];
    // Ctrl-C in the middle of a paste whose end never came.
    if (this.#isPaste && chunk === "\x03") {
      this.#isPaste = false;
      this.#rest = "";
    }
    this.#rest += chunk;
    let typed: InputEvent[] = [];
    for (;;) {
      if (this.#isPaste) {
        if (!this.#takePaste(events)) return events;
        continue;
      }
      const event = this.#next();
      if (event === undefined) break;
      if (event !== "paste") {
        if (event !== "nothing") typed.push(event);
        continue;
      }
      events.push(...this.#unburst(typed), ...this.#endBurst());
      typed = [];
      this.#isPaste = true;
      this.#endedWithReturn = false;
    }
    events.push(...this.#unburst(typed));
    return events;
  }

  /** Called when nothing has arrived for a while. */
  flush(): InputEvent[] {
    const events = this.#endBurst();
    if (this.#isPaste || this.#rest === "") return events;
    const rest = this.#rest;
    this.#rest = "";
    if (rest === "\x1b") events.push({ kind: "key", key: "escape" });
    else if (rest.length === 2) events.push({ kind: "key", key: `alt-${rest[1]}` });
    return events; // half of a sequence is dropped
  }

  /** Pasted text up to its end; false: more follows. */
  #takePaste(events: InputEvent[]): boolean {
    const end = this.#rest.indexOf(pasteEnd);
    const until = end >= 0 ? end : this.#rest.length - overlap(this.#rest, pasteEnd);
    const raw = this.#rest.slice(0, until);
    this.#rest = this.#rest.slice(end >= 0 ? end + pasteEnd.length : until);
    if (raw !== "") {
      const text = this.#endedWithReturn && raw.startsWith("\n") ? raw.slice(1) : raw;
      this.#endedWithReturn = raw.endsWith("\r");
      if (text !== "") events.push({ kind: "paste", text: text.replaceAll(/\r\n?/g, "\n") });
    }
    if (end < 0) return false;
    this.#isPaste = false;
    return true;
  }

  /** Makes text of lines that came at once. */
  #unburst(typed: readonly InputEvent[]): InputEvent[] {
    const isEnter = (event: InputEvent): boolean => event.kind === "key" && event.key === "enter";
    const hasText = typed.some(({ kind }) => kind === "text");
    const atOnce =
      typed.length > 1 || typed.some((one) => one.kind === "text" && [...one.text].length > 1);
    if (!this.#isBurst && !(hasText && atOnce)) return [...typed];
    this.#isBurst = true;
    const out: InputEvent[] = [];
    for (const event of typed) {
      if (this.#heldEnter) {
        this.#heldEnter = false;
        this.#hasLines = true;
        out.push({ kind: "paste", text: "\n" });
      }
      if (isEnter(event)) this.#heldEnter = true;
      else if (event.kind === "text") out.push({ kind: "paste", text: event.text });
      else out.push(event);
    }
    return out;
  }

  #endBurst(): InputEvent[] {
    const held = this.#heldEnter;
    const hasLines = this.#hasLines;
    this.#isBurst = false;
    this.#heldEnter = false;
    this.#hasLines = false;
    if (!held) return [];
    return [hasLines ? { kind: "paste", text: "\n" } : { kind: "key", key: "enter" }];
  }

  /** undefined: more is needed. "paste": pasted text begins. */
  #next(): InputEvent | "paste" | "nothing" | undefined {
    const rest = this.#rest;
    if (rest === "") return undefined;
    const first = rest[0]!;
    if (first === "\x1b") return this.#sequence(rest);
    const stop = rest.search(control);
    if (stop !== 0) {
      const text = stop < 0 ? rest : rest.slice(0, stop);
      this.#rest = rest.slice(text.length);
      return { kind: "text", text };
    }
    this.#rest = rest.slice(1);
    return { kind: "key", key: controlKey(first) };
  }

  #sequence(rest: string): InputEvent | "paste" | "nothing" | undefined {
    const head = rest.slice(0, longestSequence);
    const found = csi.exec(head);
    const console = linuxConsole.exec(head);
    if (console) return this.#taken(console[0].length, "nothing"); // function keys
    if (found) {
      const [all, parameters, final] = found as unknown as [string, string, string];
      if (final === "~" && parameters === "200") return this.#taken(all.length, "paste");
      return this.#taken(all.length, csiEvent(parameters, final));
    }
    if (unfinishedCsi.test(head)) return undefined;
    if (answer.test(head)) {
      const end = answerEnd.exec(head.slice(2));
      if (end) return this.#taken(2 + end.index + end[0].length, "nothing");
      if (head.length < longestSequence) return undefined;
    }
    if (head.startsWith("\x1bO")) {
      if (head.length < 3) return undefined;
      const key = finals.get(head[2]!);
      return this.#taken(3, key === undefined ? "nothing" : { kind: "key", key });
    }
    if (head.startsWith("\x1b\x1b")) return this.#taken(1, "nothing"); // Alt with a key that has a sequence
    const char = String.fromCodePoint(head.codePointAt(1)!);
    const key = control.test(char) ? controlKey(char) : char;
    return this.#taken(1 + char.length, { kind: "key", key: withModifiers(key, 2) });
  }

  #taken<T>(count: number, event: T): T {
    this.#rest = this.#rest.slice(count);
    return event;
  }
}

function controlKey(char: string): string {
  return controls.get(char) ?? `ctrl-${String.fromCharCode(char.charCodeAt(0) + 96)}`;
}

/** `bits`: 1 Shift, 2 Alt, 4 Ctrl. */
function withModifiers(key: string, bits: number): string {
  const bare = key.startsWith("ctrl-") ? key.slice(5) : key;
  const ctrl = (bits & 4) !== 0 || bare !== key;
  return `${ctrl ? "ctrl-" : ""}${bits & 2 ? "alt-" : ""}${bits & 1 ? "shift-" : ""}${bare}`;
}

function csiEvent(parameters: string, final: string): InputEvent | "nothing" {
  if (parameters.startsWith("?")) return final === "u" ? { kind: "kitty" } : "nothing";
  const [first = "", second = "", third = ""] = parameters.split(";");
  const [modifier, kind] = second.split(":");
  const bits = Math.max(0, Number(modifier || 1) - 1);
  if (kind === "3") return "nothing"; // let go
  if (final === "u") return characterEvent(first, bits);
  if (final === "~" && first === "27") return characterEvent(third, bits);
  if (final === "Z") return { kind: "key", key: "shift-tab" };
  const key = final === "~" ? numbered.get(first) : finals.get(final);
  return key === undefined ? "nothing" : { kind: "key", key: withModifiers(key, bits) };
}

/** A key that was sent by its code point: "97", or "97:65" with its code point under Shift. */
function characterEvent(codes: string, bits: number): InputEvent | "nothing" {
  const [code = 0, shifted = 0] = codes.split(":").map(Number);
  const named = coded.get(code);
  if (named !== undefined) return { kind: "key", key: withModifiers(named, bits) };
  const onKeypad = code >= keypadFirst ? keypad[code - keypadFirst] : undefined;
  const isPrivate = code >= 0xe000 && code <= 0xf8ff;
  const isNone = !Number.isInteger(code) || code < 32 || code > 0x10ffff;
  if (isNone || (isPrivate && onKeypad === undefined)) return "nothing";
  const char = onKeypad ?? String.fromCodePoint(code);
  if ((bits & 6) !== 0) return { kind: "key", key: withModifiers(char.toLowerCase(), bits & 6) };
  if ((bits & 1) === 0) return { kind: "text", text: char };
  const isShifted = shifted > 32 && shifted <= 0x10ffff;
  return { kind: "text", text: isShifted ? String.fromCodePoint(shifted) : char.toUpperCase() };
}

/** The number of characters at the end of a text that begin the mark. */
function overlap(text: string, mark: string): number {
  for (let count = Math.min(mark.length - 1, text.length); count > 0; count--) {
    if (text.endsWith(mark.slice(0, count))) return count;
  }
  return 0;
}
