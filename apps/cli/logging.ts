// The log of the command line: --log-level, or else the variable LANTERN_LOG. It goes to stderr; stdout has the results.
//
// error: why a command failed. warn: warnings. info (default): everything else that a command prints beside its result:
// notes, progress, timings, the server's requests. debug: the details behind it.

import { type Command, Option } from "commander";
import {
  type Logger,
  type LogLevel,
  logLevelOf,
  logLevels,
  makeLogger,
} from "../../src/base/log.ts";
import type { Terminal } from "../../src/platform/node-cli.ts";
import type { Palette } from "./text.ts";

const logVariable = "LANTERN_LOG";

export function logLevelOption(): Option {
  return new Option(
    "--log-level <level>",
    `what to say on stderr, from least to most (also: ${logVariable}) (default: info)`,
  ).choices([...logLevels]);
}

/** Adds the flag to a command of the program, on which it sets the level. */
export function addLogLevel(command: Command, program: () => Command | null | undefined): Command {
  return command
    .addOption(logLevelOption())
    .on("option:log-level", (level: string) => program()?.setOptionValue("logLevel", level));
}

/** The level that flag and environment ask for; the flag wins. */
export function chosenLevel(flag: LogLevel | undefined, terminal: Terminal): LogLevel {
  const variable = terminal.env(logVariable);
  return flag ?? (variable ? logLevelOf(variable, logVariable) : "info");
}

/** The log on a terminal. Texts are whole lines, or pieces of a progress bar. */
export function terminalLog(
  terminal: Terminal,
  level: () => LogLevel,
  palette: () => Palette,
): Logger {
  return makeLogger(level, (text, of) =>
    terminal.err(of === "debug" ? palette().dim(`debug: ${text}`) : text),
  );
}

/** The terminal for commands: their stderr is of level info. */
export function terminalWith(terminal: Terminal, log: Logger): Terminal {
  return new Proxy(terminal, {
    get: (target, name) => {
      if (name === "err") return log.info;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
