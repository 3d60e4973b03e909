// An error as data, for another thread or machine, and back: there it has the same class again, with its code, message and facts.

import { byName } from "./by-name.ts";
import {
  AbortedError,
  ContextError,
  DeviceLostError,
  DeviceMemoryError,
  DisposedError,
  type ErrorCode,
  FormatError,
  type FormatFacts,
  HangError,
  KvRangeError,
  LanternError,
  MemoryError,
  ModelError,
  messageOf,
  OptionError,
  type OptionFacts,
  RestartingError,
  SourceError,
  UsageError,
  WorkerError,
} from "./errors.ts";

export interface ErrorFacts {
  name: string;
  message: string;
  code: ErrorCode | undefined;
  /** Distinguishes errors with this code, if that matters. Not the class's name: minifying a page changes that. */
  kind: string | undefined;
  facts: FormatFacts | OptionFacts | undefined;
  stack: string | undefined;
}

export function errorToFacts(error: unknown): ErrorFacts {
  const known = error instanceof LanternError ? error : undefined;
  const plain = error instanceof Error ? error : new Error(messageOf(error));
  return {
    name: plain.name,
    message: messageOf(plain),
    code: known?.code,
    kind: Object.keys(kinds).find((kind) => error instanceof kinds[kind]!),
    facts: known instanceof FormatError || known instanceof OptionError ? known.facts : undefined,
    stack: plain.stack,
  };
}

type ErrorClass = abstract new (...args: never[]) => LanternError;

/** The classes by name: another machine may have written it. */
const kinds: Readonly<Record<string, ErrorClass>> = byName({
  hang: HangError,
  "device-memory": DeviceMemoryError, // before its base class, too
  "device-lost": DeviceLostError,
  restarting: RestartingError,
  "kv-range": KvRangeError,
  option: OptionError,
});

const classes: Readonly<Record<string, ErrorClass>> = byName({
  format: FormatError,
  model: ModelError,
  usage: UsageError,
  context: ContextError,
  memory: MemoryError,
  disposed: DisposedError,
  aborted: AbortedError,
  source: SourceError,
  worker: WorkerError,
} satisfies Record<ErrorCode, ErrorClass>);

/** The same error on this side: same class, code, message and facts; the engine's stack is its cause. */
export function factsToError(facts: ErrorFacts): Error {
  const cause = facts.stack ? { cause: facts.stack } : undefined;
  const known = classes[facts.code ?? ""];
  if (!facts.code || !known) {
    return new WorkerError(`the engine failed: ${facts.name}: ${facts.message}`, cause);
  }
  const error = new LanternError(facts.code, facts.message, cause);
  const kind: unknown = kinds[facts.kind ?? ""]?.prototype;
  // The error has the class of its code, even if another machine has written another one.
  const isKnown = kind instanceof known;
  Object.setPrototypeOf(error, (isKnown ? kind : known.prototype) as object);
  error.name = facts.name;
  if (facts.facts) Object.assign(error, { facts: facts.facts });
  return error;
}
