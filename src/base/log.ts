// Log levels. A logger passes on lines at its level or more severe; its creator decides the use of a line. Results never go through
// a logger.

import { UsageError } from "./errors.ts";
import { show } from "./show.ts";

/** The most severe first. */
export const logLevels = ["error", "warn", "info", "debug"] as const;
export type LogLevel = (typeof logLevels)[number];

/** Writes to the log: at every level the texts that a user should see at that level. */
export type Logger = Readonly<Record<LogLevel, (text: string) => void>> & {
  /** Whether lines of this level are written: expensive texts are made only then. */
  has(level: LogLevel): boolean;
};

/** `level` is called anew for every text; `write` gets the texts that pass. */
export function makeLogger(
  level: () => LogLevel,
  write: (text: string, level: LogLevel) => void,
): Logger {
  const has = (of: LogLevel): boolean => logLevels.indexOf(of) <= logLevels.indexOf(level());
  const at = (of: LogLevel) => (text: string) => {
    if (has(of)) write(text, of);
  };
  return { has, error: at("error"), warn: at("warn"), info: at("info"), debug: at("debug") };
}

/** A level by its name; `what` is the flag or variable that gave it. */
export function logLevelOf(name: string, what: string): LogLevel {
  const level = logLevels.find((known) => known === name);
  if (level !== undefined) return level;
  throw new UsageError(`${what}: got ${show(name)}, expected one of ${logLevels.join(", ")}`);
}
