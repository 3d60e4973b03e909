// Other programs in Node: finding one by name, running one in the foreground, and running Lantern's own server behind it.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { constants } from "node:os";
import * as path from "node:path";
import { SourceError, UsageError } from "../base/errors.ts";
import { embeddedFiles } from "./node-embedded.ts";
import { pathReasonOf } from "./node-path-errors.ts";
import { makePrivateFolder, privateFileMode } from "./node-private.ts";

type Environment = (name: string) => string | undefined;

/** The first of these programs that is installed: names are looked up in PATH, paths are taken as they are. */
export function findProgram(names: readonly string[], env: Environment): string | undefined {
  const folders = (env("PATH") ?? env("Path") ?? "").split(path.delimiter);
  const ends = process.platform === "win32" ? [".exe", ".cmd", ".bat"] : [""];
  for (const name of names) {
    const places = path.isAbsolute(name)
      ? [name]
      : folders
          .filter((folder) => path.isAbsolute(folder))
          .map((folder) => path.join(folder, name));
    for (const place of places) {
      const found = [place, ...ends.map((end) => place + end)].find(isProgram);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

function isProgram(file: string): boolean {
  try {
    if (!fs.statSync(file).isFile()) return false;
    // Windows has no right to run; a file without an ending is a script for other systems there.
    if (process.platform === "win32") return path.extname(file) !== "";
    fs.accessSync(file, fs.constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export interface RunningProgram {
  /** Its exit code; 128 + the signal's number if a signal ended it. */
  readonly ended: Promise<number>;
}

/**
 * Runs a program with this one's terminal. Ctrl-C is the program's: a terminal sends it to both, and this process stays until the
 * program has ended. Without a terminal, signals are passed on.
 */
export function runProgram(
  file: string,
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): RunningProgram {
  const options = { stdio: "inherit", env: { ...process.env, ...env } } as const;
  const isScript = process.platform === "win32" && /\.(cmd|bat)$/i.test(file);
  const child = isScript
    ? spawn(
        env.ComSpec ?? process.env.ComSpec ?? "cmd.exe",
        ["/d", "/s", "/c", lineOf(file, args)],
        {
          ...options,
          windowsVerbatimArguments: true,
        },
      )
    : spawn(file, args, options);
  const pass = (signal: NodeJS.Signals): void => {
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, pass);
  const ended = new Promise<number>((resolve, reject) => {
    child.on("error", (error) =>
      reject(new SourceError(`launch: cannot start ${file}: ${pathReasonOf(error)}`)),
    );
    child.on("exit", (code, signal) =>
      resolve(code ?? (signal ? 128 + constants.signals[signal] : 1)),
    );
  }).finally(() => {
    for (const signal of signals) process.off(signal, pass);
  });
  return { ended };
}

/** A line for cmd.exe, which npm's programs need on Windows. What cmd.exe would read as more than a text is refused. */
function lineOf(file: string, args: readonly string[]): string {
  const wrong = args.find((arg) => /["%!\r\n]/.test(arg));
  if (wrong !== undefined) {
    throw new UsageError(
      `launch: got the argument ${JSON.stringify(wrong)}, expected one without " % ! and line breaks, which cmd.exe does not pass on. Start ${path.basename(file)} without it`,
    );
  }
  return `"${[file, ...args].map((word) => `"${word}"`).join(" ")}"`;
}

export interface OwnServer {
  /** The line that it prints when it is ready; rejects if it ends before. */
  readonly ready: Promise<string>;
  stop(): Promise<void>;
}

/**
 * Starts this program once more, as a server: in a group of its own, so that Ctrl-C in the terminal does not end it before its client.
 * It ends when this process ends, also if it is killed (bin/runtime.js watches the pipe). `log`: a file for its messages.
 */
export function startOwnServer(args: readonly string[], log: string): OwnServer {
  const script = embeddedFiles() ? [] : process.argv.slice(1, 2);
  makePrivateFolder(path.dirname(log));
  const messages = fs.openSync(log, "w", privateFileMode);
  const child = spawn(process.execPath, [...process.execArgv, ...script, ...args], {
    detached: true,
    stdio: ["ignore", "pipe", messages, "pipe"],
    env: { ...process.env, LANTERN_RESTARTED: "watch" },
    windowsHide: true,
  });
  fs.closeSync(messages);
  const ended = new Promise<void>((resolve) => child.on("exit", () => resolve()));
  const ready = new Promise<string>((resolve, reject) => {
    let text = "";
    child.stdout!.on("data", (piece: Buffer) => {
      text += piece.toString("utf8");
      if (text.includes("\n")) resolve(text.slice(0, text.indexOf("\n")));
    });
    child.on("error", reject);
    child.on("exit", (code) => {
      const said = fs.readFileSync(log, "utf8").trim().split("\n").slice(-3).join(" ");
      reject(
        new SourceError(`launch: the server ended with code ${code}: ${said || "no message"}`),
      );
    });
  });
  ready.catch(() => {}); // the caller may be asking somebody, and waits for it later
  child.stdio[3]?.on("error", () => {});
  return {
    ready,
    async stop() {
      if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
      await ended;
    },
  };
}
