// Lines over pipes: a program that is started and spoken with through its standard streams, and this process's own standard streams.
// The other side is not trusted: lines have a largest size, and the amount between two of our own lines is bounded.

import { type ChildProcess, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { atMost } from "../base/at-most.ts";
import { messageOf, SourceError } from "../base/errors.ts";

/** The other side of a pipe. */
export interface LinePipe {
  /** Once, before anything else. `end` gets the reason, as a clause, and is called once. */
  listen(onLine: (line: string) => void, onEnd: (reason: string) => void): void;
  /** Resolves when the pipe takes more. */
  write(line: string): Promise<void>;
  /** Ends it; the started program is gone when this resolves. */
  close(): Promise<void>;
}

export interface LineLimits {
  /** Bytes of a line. */
  readonly lineBytes: number;
  /** Bytes and lines that may come until something is written again. */
  readonly floodBytes: number;
  readonly floodLines: number;
}

export interface LineProgram {
  readonly command: string;
  readonly args: readonly string[];
  /** Variables besides the few that every program gets (PATH, HOME and the like). */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string | undefined;
  readonly limits: LineLimits;
}

/** Variables that a program inherits: none that may hold a key. */
const inherited: readonly string[] =
  process.platform === "win32"
    ? "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE PROGRAMFILES SYSTEMDRIVE SYSTEMROOT TEMP USERNAME USERPROFILE".split(
        " ",
      )
    : "HOME LANG LOGNAME PATH SHELL TERM TMPDIR USER".split(" ");

/** The time in which a program may end by itself, then after SIGTERM. */
const graceMs = 1000;
/** The bytes of its stderr that are kept: the last ones. */
const errBytes = 2000;

/** Starts a program; rejects if that is not possible. It gets no Ctrl-C of the terminal, and ends with this process. */
export async function startLineProgram(program: LineProgram): Promise<LinePipe> {
  const { command, args, env, cwd, limits } = program;
  const own = inherited.flatMap((name) => {
    const value = process.env[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  const child = spawn(command, [...args], {
    stdio: "pipe",
    env: { ...Object.fromEntries(own), ...env },
    ...(cwd !== undefined && { cwd }),
    detached: process.platform !== "win32", // a process group of its own
    windowsHide: true,
  });
  const { promise: started, resolve, reject } = Promise.withResolvers<void>();
  child.once("spawn", resolve);
  child.once("error", reject);
  try {
    await started;
  } catch (cause) {
    throw new SourceError(`${command} cannot be started: ${messageOf(cause)}`, { cause });
  }
  return new ProgramPipe(child, limits);
}

class ProgramPipe implements LinePipe {
  readonly #child: ChildProcess;
  readonly #limits: LineLimits;
  readonly #gone: Promise<void>;
  readonly #endWithUs = (): void => this.#signal("SIGKILL");
  #isGone = false;
  #reading: LineReading | undefined;
  #err = "";

  constructor(child: ChildProcess, limits: LineLimits) {
    this.#child = child;
    this.#limits = limits;
    child.on("error", () => {}); // a signal that could not be sent: it is gone
    child.stdin!.on("error", () => {}); // it no longer reads: `close` follows
    child.stderr!.on("data", (piece: Buffer) => {
      this.#err = (this.#err + piece.toString("utf8")).slice(-errBytes);
    });
    this.#gone = new Promise((resolve) => {
      child.once("exit", () => {
        this.#isGone = true;
        process.off("exit", this.#endWithUs);
        this.#signal("SIGKILL"); // the processes it has started itself
        resolve();
      });
    });
    process.on("exit", this.#endWithUs);
  }

  listen(onLine: (line: string) => void, onEnd: (reason: string) => void): void {
    const end = once((reason: string): void => {
      onEnd(reason);
      void this.close();
    });
    this.#reading = new LineReading(this.#child.stdout!, this.#limits, onLine, end);
    this.#child.once("close", (code, signal) => {
      const how = signal === null ? `with exit code ${code}` : `by ${signal}`;
      const said = this.#err.trim().split("\n").slice(-3).join(" | ");
      end(`it ended ${how}${said === "" ? "" : `, and said: ${said}`}`);
    });
  }

  async write(line: string): Promise<void> {
    this.#reading?.reset();
    if (this.#isGone) throw new SourceError("the program has ended");
    await writeLine(this.#child.stdin!, line);
  }

  async close(): Promise<void> {
    this.#child.stdin!.end();
    await atMost(graceMs, this.#gone);
    if (!this.#isGone) this.#signal("SIGTERM");
    await atMost(graceMs, this.#gone);
    if (!this.#isGone) this.#signal("SIGKILL");
    await atMost(graceMs, this.#gone);
    this.#child.stdout!.destroy();
    this.#child.stderr!.destroy();
  }

  /** To the program and all that it has started. */
  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    try {
      if (process.platform === "win32") this.#child.kill(signal);
      else process.kill(-pid, signal);
    } catch {
      // none of them is left
    }
  }
}

/** This process's standard streams: a client started it. */
export function ownLines(limits: LineLimits): LinePipe {
  const { stdin, stdout } = process;
  return {
    listen(onLine, onEnd) {
      const end = once(onEnd);
      new LineReading(
        stdin,
        { ...limits, floodBytes: Infinity, floodLines: Infinity },
        onLine,
        end,
      );
      stdin.once("end", () => end("its input has ended"));
    },
    write: (line) => writeLine(stdout, line),
    close: async () => {
      stdin.pause();
      stdin.unref?.();
    },
  };
}

/** Splits a stream into lines. */
class LineReading {
  readonly #limits: LineLimits;
  #parts: Buffer[] = [];
  #size = 0;
  #bytes = 0;
  #lines = 0;

  constructor(
    stream: Readable,
    limits: LineLimits,
    onLine: (line: string) => void,
    onEnd: (reason: string) => void,
  ) {
    this.#limits = limits;
    const stop = (reason: string): void => {
      stream.off("data", read);
      stream.resume(); // the rest is dropped
      this.#parts = [];
      onEnd(reason);
    };
    const read = (piece: Buffer): void => {
      this.#bytes += piece.length;
      let from = 0;
      for (let at = piece.indexOf(10); at >= 0; at = piece.indexOf(10, from)) {
        this.#parts.push(piece.subarray(from, at));
        from = at + 1;
        const line = Buffer.concat(this.#parts).toString("utf8");
        this.#parts = [];
        this.#size = 0;
        if (++this.#lines > this.#limits.floodLines) break;
        onLine(line);
      }
      this.#parts.push(piece.subarray(from));
      this.#size += piece.length - from;
      if (this.#size > limits.lineBytes)
        stop(`it sent a line of more than ${limits.lineBytes} bytes`);
      else if (this.#bytes > limits.floodBytes || this.#lines > limits.floodLines) {
        stop("it sent more than anybody asked for");
      }
    };
    stream.on("data", read);
    stream.on("error", (error) => onEnd(`its output failed: ${messageOf(error)}`));
  }

  /** Something was asked for: more may come. */
  reset(): void {
    this.#bytes = 0;
    this.#lines = 0;
  }
}

async function writeLine(stream: Writable, line: string): Promise<void> {
  if (stream.write(`${line}\n`)) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  stream.once("drain", resolve);
  stream.once("close", resolve);
  await promise;
}

function once<T>(run: (value: T) => void): (value: T) => void {
  let isDone = false;
  return (value) => {
    if (isDone) return;
    isDone = true;
    run(value);
  };
}

/** fetch() with answers of at most this many bytes: a longer one fails. */
export function boundedFetch(maxBytes: number): typeof fetch {
  return async (input, init) => {
    const response = await fetch(input, init);
    if (response.body === null) return response;
    let bytes = 0;
    const counted = response.body.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(piece, controller) {
          bytes += piece.length;
          if (bytes <= maxBytes) controller.enqueue(piece);
          else controller.error(new SourceError(`the answer has more than ${maxBytes} bytes`));
        },
      }),
    );
    const { status, statusText, headers } = response;
    const bounded = new Response(counted, { status, statusText, headers });
    Object.defineProperty(bounded, "url", { value: response.url });
    return bounded;
  };
}
