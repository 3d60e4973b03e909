// The sources of a chat's messages: an editor on a terminal that can move its cursor (EditedInput), or else lines (LineInput), from
// a pipe or edited by the system.

import { interrupted, type LineReader, type Terminal } from "../../../src/platform/node-cli.ts";
import type { RawTerminal } from "../../../src/platform/node-raw-terminal.ts";
import { plainText } from "../../../src/platform/terminal-text.ts";
import type { Palette } from "../text.ts";
import { type Answer, Editor, type EditorOptions, type Outcome } from "./editor.ts";
import { type InputEvent, KeyDecoder } from "./keys.ts";
import { asMessage, goesOn, type Message } from "./message.ts";
import type { Recall } from "./recall.ts";
import { Screen } from "./screen.ts";
import { EditorView } from "./view.ts";

/** Ctrl-C at the prompt. `cleared`: it has cleared a text. */
export interface Interrupted {
  readonly kind: typeof interrupted;
  readonly cleared: boolean;
}

export interface ChatInput {
  /** The next message; undefined: the end of the input. */
  next(): Promise<Message | Interrupted | undefined>;
  /** The answer to a question, typed after it was asked. */
  ask(question: string): Promise<string | undefined | typeof interrupted>;
  close(): void;
}

/** Reads lines: a \ at the end continues on the next; on a terminal so does """. */
export class LineInput implements ChatInput {
  readonly #lines: LineReader;
  readonly #color: Palette;
  readonly #terminal: Pick<Terminal, "inIsTerminal" | "out">;

  constructor(lines: LineReader, color: Palette, terminal: Pick<Terminal, "inIsTerminal" | "out">) {
    this.#lines = lines;
    this.#color = color;
    this.#terminal = terminal;
  }

  async next(): Promise<Message | Interrupted | undefined> {
    const isTerminal = this.#terminal.inIsTerminal;
    let text = "";
    for (let prompt = this.#color.green("> "); ; prompt = this.#color.green(". ")) {
      const line = await this.#lines.next(prompt);
      // The prompt's line has no end yet.
      if (line === interrupted || (line === undefined && isTerminal)) this.#terminal.out("\n");
      if (line === interrupted) return { kind: interrupted, cleared: false };
      if (line === undefined && text === "") return undefined;
      text += line ?? "";
      const more = line === undefined ? undefined : goesOn(text, isTerminal);
      if (more === undefined) return asMessage(text, isTerminal);
      text = more;
    }
  }

  ask(question: string): Promise<string | undefined | typeof interrupted> {
    return this.#lines.next(question);
  }

  close(): void {
    this.#lines.close();
  }
}

/** How long the rest of a sequence or of a paste may take. */
const waits = { "rest of a sequence": 500, "rest of a paste": 30 } as const;
/** Marks pastes; and tells Shift+Enter from Enter if the terminal knows it. */
const marksPaste = ["\x1b[?2004h", "\x1b[?2004l"] as const;
const asksForKitty = "\x1b[?u";
const kittyKeys = ["\x1b[>1u", "\x1b[<u"] as const;
const xtermKeys = ["\x1b[>4;1m", "\x1b[>4;0m"] as const;

export interface EditedOptions {
  readonly recall: Recall;
  /** A text was sent: it is kept. */
  onSent(text: string): Promise<void>;
  readonly complete: (text: string) => string | undefined;
  readonly color: Palette;
  env(name: string): string | undefined;
}

export class EditedInput implements ChatInput {
  readonly #terminal: RawTerminal;
  readonly #options: EditedOptions;
  readonly #screen: Screen;
  readonly #decoder = new KeyDecoder();
  #reads = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Events that were typed while no question was open. */
  #ahead: InputEvent[] = [];
  #current: { editor: Editor; view: EditorView; done: (answer: Answer) => void } | undefined;
  #hasEnded = false;
  #isStopped = false;
  #hasKitty = false;
  #cut = "";

  constructor(terminal: RawTerminal, options: EditedOptions) {
    this.#terminal = terminal;
    this.#options = options;
    const { env } = options;
    const cuts = env("XTERM_VERSION") !== undefined || env("TERM") === "linux";
    this.#screen = new Screen({
      get columns() {
        return terminal.columns;
      },
      get rows() {
        return terminal.rows;
      },
      draw: (text) => terminal.draw(text),
      reflows: !cuts,
    });
    terminal.divert((text) => this.#screen.write(text));
    terminal.listen({
      input: (text) => this.#input(text),
      ended: () => this.#end(),
      resized: () => this.#screen.repaint(),
      resumed: () => this.#resumed(),
    });
    terminal.switchOn(...marksPaste);
    if (env("XTERM_VERSION") || env("TMUX")) terminal.switchOn(...xtermKeys);
    if (env("TERM") !== "linux") terminal.draw(asksForKitty);
  }

  async next(): Promise<Message | Interrupted | undefined> {
    const { recall, complete, color, onSent } = this.#options;
    const marks = { prompt: color.green("> "), next: color.green(". ") };
    const options = { recall, complete, goesOn: (text: string) => goesOn(text, true) };
    const ahead = this.#ahead;
    this.#ahead = [];
    const answer = await this.#edit(marks, options, ahead);
    if (answer.kind === "end") return undefined;
    if (answer.kind === "interrupt") return { kind: interrupted, cleared: answer.hadText };
    if (recall.add(answer.text)) await onSent(answer.text);
    return asMessage(answer.text, true);
  }

  async ask(question: string): Promise<string | undefined | typeof interrupted> {
    this.#screen.write(`${question}\n`);
    const mark = this.#options.color.green("? ");
    const answer = await this.#edit({ prompt: mark, next: mark }, {}, []);
    if (answer.kind === "interrupt") return interrupted;
    return answer.kind === "end" ? undefined : answer.text;
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#screen.edit(undefined);
    this.#terminal.close();
  }

  async #edit(
    marks: ConstructorParameters<typeof EditorView>[0],
    options: EditorOptions,
    ahead: readonly InputEvent[],
  ): Promise<Answer> {
    const view = new EditorView(marks);
    const editor = new Editor(
      { ...options, vertical: (of, rows) => view.vertical(of, rows) },
      this.#cut,
    );
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.#current = { editor, view, done: resolve };
    if (this.#hasEnded) this.#finish({ kind: "end" });
    else this.#take(ahead);
    return await promise;
  }

  #input(chunk: string): void {
    clearTimeout(this.#timer);
    this.#reads++;
    this.#take(this.#decoder.push(chunk));
    const { waitsFor } = this.#decoder;
    if (waitsFor === undefined) return;
    // After the timer, data that has arrived meanwhile is read first: this process may have been late.
    const read = this.#reads;
    const flush = (): void => {
      if (this.#reads === read) this.#take(this.#decoder.flush());
    };
    this.#timer = setTimeout(() => setImmediate(flush), waits[waitsFor]);
  }

  #take(events: readonly InputEvent[]): void {
    for (const [at, event] of events.entries()) {
      const { kind } = event;
      if (kind === "kitty") this.#useKitty();
      else if (this.#current === undefined) this.#meanwhile(event);
      else {
        const outcome = this.#current.editor.handle(event);
        if (outcome && this.#obey(outcome)) {
          // The remaining events are for the next question.
          for (const rest of events.slice(at + 1)) this.#meanwhile(rest);
          return;
        }
      }
    }
    this.#show();
  }

  /** A key while the model answers. */
  #meanwhile(event: InputEvent): void {
    const key = event.kind === "key" ? event.key : "";
    if (key === "ctrl-c") this.#terminal.interrupt();
    else if (key === "ctrl-z") this.#terminal.suspend();
    else if (key === "ctrl-\\") this.#terminal.quit();
    else this.#ahead.push(event);
  }

  /** True: the editor is done. */
  #obey(outcome: Outcome): boolean {
    switch (outcome.kind) {
      case "clear screen":
        this.#screen.clear();
        return false;
      case "suspend":
        this.#screen.edit(undefined);
        this.#isStopped = true;
        this.#terminal.suspend();
        return false;
      case "quit":
        this.#terminal.quit();
        return false;
      case "submit":
      case "interrupt":
      case "end":
        this.#finish(outcome);
        return true;
    }
    return outcome satisfies never;
  }

  #finish(answer: Answer): void {
    const { editor, view, done } = this.#current!;
    this.#current = undefined;
    this.#cut = editor.cut;
    this.#screen.edit(undefined);
    this.#screen.write(`${view.finished(plainText(editor.text))}\n`);
    done(answer);
  }

  #resumed(): void {
    this.#isStopped = false;
    this.#screen.restart();
    this.#show();
  }

  #show(): void {
    const current = this.#current;
    // Laying a long text out for every read of a paste would take longer than the paste.
    if (current === undefined || this.#isStopped || this.#decoder.isPasting) return;
    this.#screen.edit((columns, rows) => current.view.layOut(current.editor, columns, rows));
  }

  #useKitty(): void {
    if (!this.#hasKitty) this.#terminal.switchOn(...kittyKeys);
    this.#hasKitty = true;
  }

  #end(): void {
    this.#hasEnded = true;
    if (this.#current) this.#finish({ kind: "end" });
  }
}
