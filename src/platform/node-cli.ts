// The command line's interface to Node: terminal, standard streams, signals, files. apps/cli reaches the process only
// through the Terminal below, so that tests can run commands with another one.

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import * as os from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type ChatFiles, nodeChatFiles } from "./node-chats.ts";
import { nodeCpuTimes } from "./node-cpu-times.ts";
import { embeddedFiles } from "./node-embedded.ts";
import { ownFolder } from "./node-own-folder.ts";
import { removeDeadPartsIn } from "./node-part-names.ts";
import { orPathError } from "./node-path-errors.ts";
import { checkWritable, writePrivateText } from "./node-private.ts";
import { type Diversion, openRawTerminal, type RawTerminal } from "./node-raw-terminal.ts";
import { noteInput, refuseText } from "./node-replace.ts";
import { onInterrupt } from "./node-signals.ts";
import { nodeTypedTexts, type TypedTexts } from "./node-typed-texts.ts";
import { type GpuAdapter, gpuAdapters } from "./node-vulkan.ts";
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

/** The load of the machine; the difference of two of these describes the time in between. */
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
  /** Reads the whole standard input, as text. */
  readInput(): Promise<string>;
  readText(path: string): Promise<string>;
  /** Readable by this user only: a saved conversation is private. */
  writeText(path: string, text: string): Promise<void>;
  /** Rejects if no file can be written there: called before the work that makes the file. */
  checkWritable(path: string): Promise<void>;
  /** Rejects if no file can be written in this folder; removes half-written files of killed processes there. */
  checkFolder(path: string): Promise<void>;
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
  /** All GPU adapters with their memory; a sentence: why they are not known. */
  gpuAdapters(): readonly GpuAdapter[] | string;
  load(): MachineLoad;
  /** This program with other arguments and variables, as a process that stays when this one ends; undefined: it cannot. */
  startInBackground?(args: readonly string[], env: Readonly<Record<string, string>>): Promise<void>;
  /** The location of kept chats; undefined: none are kept. */
  readonly chats?: ChatFiles | undefined;
  /** The location of the texts that were typed in chats; undefined: they are not kept. */
  readonly typed?: TypedTexts | undefined;
  /** For editing text; undefined: standard input or output is none, or the terminal cannot do it. One at a time. */
  raw?(): RawTerminal | undefined;
}

/** Nobody types two lines within this time. */
const pastedTogetherMs = 30;

export function nodeTerminal(): Terminal {
  // `lantern ... | head`: when the reader has gone, end silently.
  let endsWithReaders = true;
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
      if (endsWithReaders) process.exit(0);
    });
  }
  const diversion: Diversion = { writer: undefined };
  const write = (stream: NodeJS.WriteStream, text: string): void => {
    if (!stream.isTTY) stream.write(text);
    else if (diversion.writer) diversion.writer(terminalText(text));
    else stream.write(terminalText(text));
  };
  return {
    out: (text) => write(process.stdout, text),
    err: (text) => write(process.stderr, text),
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
    checkFolder: async (path) => {
      await orPathError("file: cannot write in", path, checkWritable(join(path, "file")));
      await removeDeadPartsIn(path);
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
    gpuAdapters: () => gpuAdapters(),
    load,
    startInBackground: async (args, env) => {
      const { startInBackground } = await import("./node-background.ts");
      startInBackground(args, env);
    },
    chats: nodeChatFiles(),
    typed: nodeTypedTexts(),
    raw: () => openRawTerminal(diversion),
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
  const { busySeconds = 0, ownSeconds = 0, atMs = performance.now() } = nodeCpuTimes() ?? {};
  return {
    loadAverage: process.platform === "win32" ? undefined : os.loadavg()[0]!,
    busySeconds,
    ownSeconds,
    atMs,
    residentBytes: process.memoryUsage.rss(),
  };
}

async function readInput(): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of process.stdin) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString("utf8");
}

/**
 * One readline for the whole session: a second one would lose the lines that the first has already buffered. On a terminal the system
 * edits the line, and lines that arrive at once are one text: they were pasted.
 */
function processLines(): LineReader {
  const { stdin, stdout } = process;
  const isTerminal = stdin.isTTY === true && stdout.isTTY === true;
  const readline = createInterface({ input: stdin, output: stdout, terminal: false });
  const waiting: string[] = [];
  let ended = false;
  let wake: ((event?: typeof interrupted) => void) | undefined;
  readline.on("line", (line) => {
    waiting.push(line);
    wake?.();
  });
  readline.on("close", () => {
    ended = true;
    wake?.();
  });
  const woken = async (): Promise<typeof interrupted | undefined> => {
    const { promise, resolve } = Promise.withResolvers<typeof interrupted | undefined>();
    wake = resolve;
    const stop = (): void => resolve(interrupted);
    if (isTerminal) process.once("SIGINT", stop);
    const event = await promise;
    process.off("SIGINT", stop);
    wake = undefined;
    return event;
  };
  return {
    async next(prompt) {
      if (isTerminal && !ended) stdout.write(terminalText(prompt));
      if (waiting.length === 0 && !ended && (await woken()) === interrupted) return interrupted;
      if (!isTerminal || waiting.length === 0) return waiting.shift();
      await new Promise((later) => setTimeout(() => setImmediate(later), pastedTogetherMs));
      return waiting.splice(0).join("\n");
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
