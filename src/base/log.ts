// Log levels. A logger passes on what is at its level or more severe; what becomes of a line is the business of the one
// who made it. Results never go through a logger.

import { UsageError } from "./errors.ts";
import { show } from "./show.ts";

/** The most severe first. */
export const logLevels = ["error", "warn", "info", "debug"] as const;
export type LogLevel = (typeof logLevels)[number];

/** Writes to the log: at every level what a user should see by then, one text each. */
export type Logger = Readonly<Record<LogLevel, (text: string) => void>> & {
  /** Whether anything of this level is written: what is expensive to say is not made up otherwise. */
  has(level: LogLevel): boolean;
};

/** `level` is asked anew for every text; `write` gets those that pass. */
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
