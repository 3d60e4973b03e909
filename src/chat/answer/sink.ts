// The sink that readers write to: the parts of an answer in their order. Parts in it are never taken back.

export type AnswerPart =
  | { readonly kind: "reasoning"; readonly text: string }
  | { readonly kind: "content"; readonly text: string }
  /** A call begins. */
  | { readonly kind: "call"; readonly index: number; readonly name: string; readonly id: string }
  /** The model wrote the call's id after its arguments. Streams have given another one by then. */
  | { readonly kind: "id"; readonly index: number; readonly id: string }
  /** More of its arguments, as JSON text. */
  | { readonly kind: "arguments"; readonly index: number; readonly text: string };

export class AnswerSink {
  #parts: AnswerPart[] = [];
  #calls = 0;
  #argumentsLength = 0;
  /** Whether the current text is reasoning. */
  isReasoning = false;

  /** The parts since the last call of this. */
  drain(): AnswerPart[] {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  get calls(): number {
    return this.#calls;
  }

  reasoning(text: string): void {
    if (text !== "") this.#parts.push({ kind: "reasoning", text });
  }

  content(text: string): void {
    if (text !== "") this.#parts.push({ kind: "content", text });
  }

  /** @param id "" if the model gave none. */
  call(name: string, id: string): void {
    this.#parts.push({ kind: "call", index: this.#calls++, name, id });
    this.#argumentsLength = 0;
  }

  lateId(id: string): void {
    this.#parts.push({ kind: "id", index: this.#calls - 1, id });
  }

  arguments(text: string): void {
    if (text === "") return;
    this.#argumentsLength += text.length;
    this.#parts.push({ kind: "arguments", index: this.#calls - 1, text });
  }

  /** A call without any arguments has an empty object of them. */
  endCall(): void {
    if (this.#argumentsLength === 0) this.arguments("{}");
  }
}

/** Gives on text without the whitespace at its start and end. */
export class Trimmed {
  #held = "";
  #isBegun: boolean;
  readonly #emit: (text: string) => void;

  /** @param isBegun There is text before it: whitespace at its start counts. */
  constructor(emit: (text: string) => void, isBegun = false) {
    this.#emit = emit;
    this.#isBegun = isBegun;
  }

  put(text: string): void {
    const all = this.#held + text;
    const from = this.#isBegun ? all : all.trimStart();
    const kept = from.trimEnd();
    this.#held = from.slice(kept.length);
    if (kept === "") return;
    this.#isBegun = true;
    this.#emit(kept);
  }
}
