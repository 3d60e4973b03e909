// The command line's interface to Node: terminal, standard streams, signals, files. src/cli reaches the process only
// through the Terminal below, so that tests can run commands with another one.

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import * as os from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type ChatFiles, nodeChatFiles } from "./node-chats.ts";
import { embeddedFiles } from "./node-embedded.ts";
import { ownFolder } from "./node-own-folder.ts";
import { orPathError } from "./node-path-errors.ts";
import { checkWritable, writePrivateText } from "./node-private.ts";
import { noteInput, refuseText } from "./node-replace.ts";
import { terminalText } from "./terminal-text.ts";

/** Lines typed by the user, or read from a pipe. */
export interface LineReader {
  /** The next line; undefined at the end of the input; "interrupt" if Ctrl-C was pressed at the prompt. */
  next(prompt: string): Promise<string | undefined | typeof interrupted>;
  close(): void;
}

export const interrupted: unique symbol = Symbol("interrupted");

export interface MachineFacts {
  /** "Neoverse-N1"; "unknown" if the system does not report it. */
  cpu: string;
  cores: number;
  memoryBytes: number;
  /** Memory that is available to programs. */
  freeBytes: number;
  /** "linux x64, Node 26.1.0" */
  system: string;
}

/** How busy the machine is; the difference of two of these describes the time in between. */
export interface MachineLoad {
  /**
   * Processes that ran or waited to run, averaged over the last minute; undefined where the system does not count
   * them (Windows).
   */
  loadAverage: number | undefined;
  /** CPU seconds that all cores together have worked since the machine started. */
  busySeconds: number;
  /** CPU seconds of this process since it started. */
  ownSeconds: number;
  atMs: number;
  /** Memory of this process that is in RAM; undefined: not known. */
  residentBytes?: number;
}

export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  readonly inIsTerminal: boolean;
  readonly outIsTerminal: boolean;
  readonly errIsTerminal: boolean;
  /** Width of the terminal behind stderr; 80 if there is none. */
  readonly columns: number;
  env(name: string): string | undefined;
  /** All of standard input, as text. */
  readInput(): Promise<string>;
  readText(path: string): Promise<string>;
  /** Readable by this user only: a saved conversation is private. */
  writeText(path: string, text: string): Promise<void>;
  /** Rejects if nothing can be written there: asked before the work whose result it is. */
  checkWritable(path: string): Promise<void>;
  lines(): LineReader;
  /**
   * Calls back on Ctrl-C (SIGINT) or SIGTERM until the returned function is called. The second signal ends the
   * process.
   */
  onInterrupt(listener: () => void): () => void;
  /** Calls back on SIGHUP until the returned function is called: settings are to be read again. */
  onHangup(listener: () => void): () => void;
  /** From now on output may go unread: `lantern serve | head -3` keeps serving. */
  outliveReaders(): void;
  now(): number;
  machine(): MachineFacts;
  load(): MachineLoad;
  /** Where chats are kept; undefined: nowhere. */
  readonly chats?: ChatFiles | undefined;
}

/** One Ctrl-C arrives twice when the launcher passes it on; nobody presses twice within this time. */
const sameInterruptMs = 100;

export function nodeTerminal(): Terminal {
  // `lantern ... | head`: when the reader has gone, end silently.
  let endsWithReaders = true;
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
      if (endsWithReaders) process.exit(0);
    });
  }
  return {
    out: (text) => void process.stdout.write(process.stdout.isTTY ? terminalText(text) : text),
    err: (text) => void process.stderr.write(process.stderr.isTTY ? terminalText(text) : text),
    inIsTerminal: process.stdin.isTTY === true,
    outIsTerminal: process.stdout.isTTY === true,
    errIsTerminal: process.stderr.isTTY === true,
    get columns() {
      return process.stderr.columns ?? 80;
    },
    env: (name) => process.env[name],
    readInput,
    readText: async (path) => {
      const text = await orPathError("file: cannot read", path, readFile(path, "utf8"));
      noteInput(path);
      return text;
    },
    writeText: async (path, text) => {
      refuseText(path);
      await orPathError("file: cannot write", path, writePrivateText(path, text));
    },
    checkWritable: async (path) => {
      refuseText(path);
      await orPathError("file: cannot write", path, checkWritable(path));
    },
    lines: processLines,
    onInterrupt,
    onHangup(listener) {
      process.on("SIGHUP", listener);
      return () => void process.off("SIGHUP", listener);
    },
    outliveReaders: () => {
      endsWithReaders = false;
    },
    now: () => performance.now(),
    machine,
    load,
    chats: nodeChatFiles(),
  };
}

function machine(): MachineFacts {
  const cpus = os.cpus();
  return {
    cpu: cpus[0]?.model.trim() || "unknown",
    cores: os.availableParallelism(),
    memoryBytes: os.totalmem(),
    freeBytes: os.freemem(),
    system: `${process.platform} ${process.arch}, Node ${process.versions.node}`,
  };
}

function load(): MachineLoad {
  const busyMs = os
    .cpus()
    .reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0);
  const { user, system } = process.cpuUsage(); // microseconds
  return {
    loadAverage: process.platform === "win32" ? undefined : os.loadavg()[0]!,
    busySeconds: busyMs / 1e3,
    ownSeconds: (user + system) / 1e6,
    atMs: performance.now(),
    residentBytes: process.memoryUsage.rss(),
  };
}

async function readInput(): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of process.stdin) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString("utf8");
}

const interrupts = ["SIGINT", "SIGTERM"] as const;

/** The listener handles the first signal; the second ends the process, whatever the listener does. */
function onInterrupt(listener: () => void): () => void {
  let last: { signal: NodeJS.Signals; atMs: number } | undefined;
  const handle = (signal: NodeJS.Signals): void => {
    const before = last;
    last = { signal, atMs: performance.now() };
    if (before === undefined) {
      listener();
      // If nothing has to be cleaned up, restore the default action for the second signal: then not even a busy
      // thread can miss it.
      const letGo = (): void => {
        if (process.listenerCount("exit") === 0) stopListening();
      };
      setTimeout(letGo, sameInterruptMs).unref();
    } else if (signal !== before.signal || last.atMs - before.atMs >= sameInterruptMs) {
      endNow(signal);
    }
  };
  const stopListening = (): void => {
    for (const signal of interrupts) process.off(signal, handle);
  };
  for (const signal of interrupts) process.on(signal, handle);
  return stopListening;
}

/**
 * Ends the process as an unhandled signal does. process.exit() would wait for every thread, and one that hangs in
 * machine code or in a system call never ends.
 */
function endNow(signal: NodeJS.Signals): void {
  if (process.platform === "win32") process.exit(128 + os.constants.signals[signal]);
  try {
    process.emit("exit", 128 + os.constants.signals[signal]); // removes unfinished files
  } finally {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  }
}

/**
 * One readline for the whole session: a second one would lose the lines that the first has already buffered. Between
 * prompts the terminal is not in raw mode, so that Ctrl-C is a signal.
 */
function processLines(): LineReader {
  const { stdin, stdout } = process;
  const terminal = stdin.isTTY === true && stdout.isTTY === true;
  const readline = createInterface({ input: stdin, output: stdout, terminal, historySize: 200 });
  const waiting: string[] = [];
  let ended = false;
  let wake: ((event: typeof interrupted | undefined) => void) | undefined;
  readline.on("line", (line) => {
    waiting.push(line);
    wake?.(undefined);
  });
  readline.on("close", () => {
    ended = true;
    wake?.(undefined);
  });
  readline.on("SIGINT", () => wake?.(interrupted));
  const settle = (listening: boolean): void => {
    if (ended || !terminal) return;
    stdin.setRawMode(listening);
    if (listening) readline.resume();
    else readline.pause();
  };
  settle(false);
  return {
    async next(prompt) {
      if (waiting.length === 0 && !ended) {
        settle(true);
        if (terminal) {
          readline.setPrompt(prompt);
          readline.prompt();
        }
        const event = await new Promise<typeof interrupted | undefined>((resolve) => {
          wake = resolve;
        });
        wake = undefined;
        settle(false);
        if (event === interrupted) {
          readline.write(null, { ctrl: true, name: "u" }); // drops the typed text
          return interrupted;
        }
      }
      return waiting.shift();
    },
    close: () => readline.close(),
  };
}

/** The machine's host name. */
export function hostName(): string {
  return os.hostname();
}

/** The version in package.json. */
export function packageVersion(): string {
  const text =
    embeddedFiles()?.text("package.json") ??
    readFileSync(join(ownFolder(), "package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
