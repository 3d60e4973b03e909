// The interface of a command: its name in the help, and how it adds itself to the program. A command is one file in
// commands/ and one entry in commands/table.ts.

import type { Command } from "commander";
import type { Logger } from "../base/log.ts";
import type { DownloadPlatform } from "../platform/download.ts";
import type { Terminal } from "../platform/node-cli.ts";
import type { Palette } from "./text.ts";

export interface CliContext {
  /** What is written to its stderr is of log level info. */
  terminal: Terminal;
  /** Warnings and debug lines; every text ends its line. */
  log: Logger;
  /** Writes to stderr at every log level: what a flag asked for (--explain, --profile). */
  asked(text: string): void;
  downloads: DownloadPlatform;
  /** Colours for stdout and stderr, according to --no-color, NO_COLOR and whether they are terminals. */
  color(): { out: Palette; err: Palette };
  /** The exit code, if it is neither 0 nor that of an error. */
  exitCode: number;
}

/** What the list of commands says of one; all else is loaded when it is called. */
export interface CliCommand {
  name: string;
  /** The arguments that it takes, as the list shows them. */
  args?: string;
  summary: string;
  body(): Promise<CommandBody>;
}

export interface CommandBody {
  /** Shown at the end of the command's help: one or two commands that work as written. */
  examples: readonly string[];
  /** Adds flags and arguments, and the action that runs the command. */
  define(command: Command, context: CliContext): void;
}
