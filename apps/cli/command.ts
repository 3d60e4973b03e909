// The interface of a command: its name in the help, and the function that adds it to the program. A command is one file
// in commands/ and one entry in commands/table.ts.

import type { Command } from "commander";
import type { Logger } from "../../src/base/log.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import type { Terminal } from "../../src/platform/node-cli.ts";
import type { Palette } from "./text.ts";

export interface CliContext {
  /** Text on its stderr is of log level info. */
  terminal: Terminal;
  /** Warnings and debug lines; every text ends its line. */
  log: Logger;
  /** Writes the output of a flag (--explain, --profile) to stderr at every log level. */
  asked(text: string): void;
  downloads: DownloadPlatform;
  /** Colours for stdout and stderr, according to --no-color, NO_COLOR and whether they are terminals. */
  color(): { out: Palette; err: Palette };
  /** The exit code, if it is neither 0 nor that of an error. */
  exitCode: number;
}

/** A command's part of the list of commands; all else is loaded when it is called. */
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
