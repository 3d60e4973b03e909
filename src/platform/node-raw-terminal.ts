// The terminal as a program that edits text needs it: every key as it is pressed, escape sequences that work, and a terminal that is as
// before when the program ends, is stopped (Ctrl-Z) or is killed by a signal that can be noticed.

import { writeSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";
import { endNow } from "./node-signals.ts";

export interface RawListener {
  input(text: string): void;
  /** The terminal is gone, or its input has ended. */
  ended(): void;
  resized(): void;
  /** The program was stopped and continues; other programs have written on the terminal. */
  resumed(): void;
}

export interface RawTerminal {
  readonly columns: number;
  readonly rows: number;
  /** Unfiltered: escape sequences work. */
  draw(text: string): void;
  listen(listener: RawListener): void;
  /** Diverts text written to the terminal meanwhile to this function, made safe. */
  divert(writer: (text: string) => void): void;
  /** Switches something of the terminal on, until it is left or the program stops. */
  switchOn(on: string, off: string): void;
  /** As Ctrl-C does where keys are signals. */
  interrupt(): void;
  /** Ctrl-Z: the whole job stops. */
  suspend(): void;
  /** Ctrl-\ */
  quit(): void;
  close(): void;
}

/** Text written to the terminal, while it is diverted. */
export interface Diversion {
  writer: ((text: string) => void) | undefined;
}

const notStoppedMs = 100;
const endings = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** undefined: not a terminal, or one that cannot move its cursor. */
export function openRawTerminal(diversion: Diversion): RawTerminal | undefined {
  const { stdin, stdout, env } = process;
  const isDumb =
    process.platform === "win32" ? env.TERM === "dumb" : !env.TERM || env.TERM === "dumb";
  if (!stdin.isTTY || !stdout.isTTY || isDumb) return undefined;
  return new NodeRawTerminal(diversion);
}

class NodeRawTerminal implements RawTerminal {
  readonly #diversion: Diversion;
  readonly #decoder = new StringDecoder("utf8");
  readonly #modes: { on: string; off: string }[] = [];
  #listener: RawListener | undefined;
  #isRaw = false;
  #isClosed = false;

  constructor(diversion: Diversion) {
    this.#diversion = diversion;
    const { stdin, stdout } = process;
    stdin.on("data", this.#read).on("end", this.#ended).on("error", this.#ended);
    stdout.on("resize", this.#resized);
    process.on("exit", this.#leaveNow).on("SIGCONT", this.#continued);
    for (const signal of endings) process.on(signal, this.#signalled);
    this.#enter();
    stdin.resume();
  }

  get columns(): number {
    return process.stdout.columns || 80; // 0: the terminal does not know its size
  }

  get rows(): number {
    return process.stdout.rows || 24;
  }

  draw(text: string): void {
    process.stdout.write(text);
  }

  listen(listener: RawListener): void {
    this.#listener = listener;
  }

  divert(writer: (text: string) => void): void {
    this.#diversion.writer = writer;
  }

  switchOn(on: string, off: string): void {
    this.#modes.push({ on, off });
    if (this.#isRaw) this.draw(on);
  }

  interrupt(): void {
    process.emit("SIGINT", "SIGINT");
  }

  suspend(): void {
    if (process.platform === "win32") {
      this.#listener?.resumed(); // it has no such thing
      return;
    }
    this.#leaveNow();
    process.kill(0, "SIGTSTP");
    // Without a shell that could continue it, no program was stopped; else SIGCONT comes before this.
    const afterResume = (): void => {
      if (!this.#isRaw && !this.#isClosed) this.#continued();
    };
    setTimeout(() => setImmediate(afterResume), notStoppedMs);
  }

  quit(): void {
    if (process.platform === "win32") return;
    this.#leaveNow();
    process.kill(process.pid, "SIGQUIT");
  }

  close(): void {
    const { stdin, stdout } = process;
    this.#isClosed = true;
    this.#diversion.writer = undefined;
    stdin.off("data", this.#read).off("end", this.#ended).off("error", this.#ended);
    stdout.off("resize", this.#resized);
    process.off("exit", this.#leaveNow).off("SIGCONT", this.#continued);
    for (const signal of endings) process.off(signal, this.#signalled);
    stdin.pause();
    this.#leave((text) => this.draw(text));
  }

  #enter(): void {
    // The second time it is already raw for Node, and not for the terminal: a shell has reset it.
    process.stdin.setRawMode(false);
    process.stdin.setRawMode(true);
    this.#isRaw = true;
    if (this.#modes.length > 0) this.draw(this.#modes.map(({ on }) => on).join(""));
  }

  #leave(write: (text: string) => void): void {
    if (!this.#isRaw) return;
    this.#isRaw = false;
    try {
      write(
        this.#modes
          .map(({ off }) => off)
          .reverse()
          .join(""),
      );
      process.stdin.setRawMode(false);
    } catch {
      // the terminal is gone
    }
  }

  /** Waits for the terminal: the process may be gone right after it. */
  readonly #leaveNow = (): void => this.#leave((text) => void writeSync(1, text));
  readonly #read = (piece: Buffer): void => this.#listener?.input(this.#decoder.write(piece));
  readonly #ended = (): void => this.#listener?.ended();
  readonly #resized = (): void => this.#listener?.resized();

  readonly #continued = (): void => {
    this.#enter();
    this.#listener?.resumed();
  };

  /** Without another handler, a signal ends the process; but the terminal is left first. */
  readonly #signalled = (signal: NodeJS.Signals): void => {
    if (process.listenerCount(signal) === 1) endNow(signal);
  };
}
