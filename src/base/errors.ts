// Every error that Lantern throws on purpose is a LanternError with a stable `code`.
//
// A message names the failure, its object, the value found, the value expected and the next step:
//   gguf: model.gguf: tensor "blk.3.attn_q.weight" has type 99. Known types: f32, f16, ...
// Anything that is not a LanternError is a bug of ours.

import { issuesOf, issuesText } from "./issues.ts";
import { show } from "./show.ts";

export type ErrorCode =
  | "format" // a model file is damaged, hostile or of a kind this build cannot read
  | "model" // the file is fine, but the model in it is incomplete or not supported
  | "usage" // an option, argument or flag is wrong
  | "context" // the prompt or the conversation does not fit the context
  | "memory" // something does not fit in memory
  | "disposed" // used after dispose()
  | "aborted" // stopped by an AbortSignal
  | "source" // a file, URL or download could not be read
  | "worker"; // the engine's thread died

/** Each class says its own name as text: the name of the class itself is another one where a bundler made it short. */
export class LanternError extends Error {
  override name: string = "LanternError";
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The facts behind a FormatError's message: the file, the field, its value, the expected value. */
export interface FormatFacts {
  file: string;
  field: string;
  got: unknown;
  expected: string;
}

/** A model file that cannot be read: truncated, hostile, or of an unknown version or type. */
export class FormatError extends LanternError {
  override name: string = "FormatError";
  readonly facts: FormatFacts;

  constructor(format: string, facts: FormatFacts, options?: ErrorOptions) {
    super(
      "format",
      `${format}: ${facts.file}: ${facts.field}: got ${show(facts.got)}, expected ${facts.expected}`,
      options,
    );
    this.facts = facts;
  }
}

/** Causes and parts of an error that are looked at for words. */
const mostCauses = 5;

/** The message of any thrown value, for use at the end of a sentence; never empty, and never an error itself. */
export function messageOf(error: unknown): string {
  return words(error, mostCauses) ?? "an error without a message";
}

function words(error: unknown, left: number): string | undefined {
  if (typeof error === "string") return textIn(error);
  if (typeof error !== "object" || error === null) return show(error);
  const field = (name: string): unknown => {
    try {
      return (error as Record<string, unknown>)[name];
    } catch {
      return undefined; // a getter that fails
    }
  };
  const issues = issuesOf({ issues: field("issues") });
  const message = issues ? issuesText(issues) : textIn(field("message"));
  if (message !== undefined) return message;
  const inner = [field("cause"), ...asList(field("errors"))].filter((one) => one !== undefined);
  const said = left > 0 ? inner.slice(0, left).map((one) => words(one, left - 1)) : [];
  const found = said.filter((one) => one !== undefined);
  if (found.length > 0) return found.join("; ");
  const facts = [field("name"), field("code")].map(textIn).filter((one) => one !== undefined);
  if (facts.length > 0) return `${facts.join(" ")}, without a message`;
  return error instanceof Error ? undefined : show(error);
}

const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

const textIn = (value: unknown): string | undefined =>
  typeof value === "string" && value.trim() !== "" ? value : undefined;

/** Any thrown value for a log or a report of a bug: the position of the throw, and the cause. Never empty. */
export function detailsOf(error: unknown): string {
  const parts: string[] = [];
  for (let each = error; parts.length < mostCauses && each !== undefined; ) {
    const { stack, cause } = each instanceof Error ? each : ({} as Partial<Error>);
    const message = messageOf(each);
    // A stack begins with name and message, unless one of them was changed.
    const where = textIn(stack);
    if (where === undefined) parts.push(message);
    else parts.push(where.includes(message) ? where : `${message}\n${where}`);
    each = cause;
  }
  return parts.length > 0 ? parts.join("\n  because: ") : messageOf(error);
}

export class ModelError extends LanternError {
  override name: string = "ModelError";
  constructor(message: string, options?: ErrorOptions) {
    super("model", message, options);
  }
}

/** An answer that does not match its schema: it was cut off, or a refinement refuses it. */
export class AnswerError extends ModelError {
  override name: string = "AnswerError";
  /** The part of the answer that there is: `text` is as far as it got. */
  readonly answer: {
    readonly text: string;
    readonly reasoning: string;
    readonly stopReason: string;
  };

  constructor(message: string, answer: AnswerError["answer"], options?: ErrorOptions) {
    super(message, options);
    this.answer = answer;
  }
}

/** Keys or values that the type of the KV cache cannot hold. The request is fine, and the model as well, with a cache of F32. */
export class KvRangeError extends ModelError {
  override name: string = "KvRangeError";
}

export class UsageError extends LanternError {
  override name: string = "UsageError";
  constructor(message: string, options?: ErrorOptions) {
    super("usage", message, options);
  }
}

/** A value that an option does not take. Each surface says it with its own name of the option: a flag, a field, a label. */
export interface OptionFacts {
  /** Its name in the API. */
  readonly option: string;
  /** The wrong part of it: "", or "[3]". */
  readonly part: string;
  /** As a sentence shows it. */
  readonly got: string;
  readonly expected: string;
}

export class OptionError extends UsageError {
  override name: string = "OptionError";
  readonly facts: OptionFacts;

  constructor(option: string, got: unknown, expected: string, part: string = "") {
    const shown = show(got);
    super(`${option}${part}: got ${shown}, expected ${expected}`);
    this.facts = { option, part, got: shown, expected };
  }
}

export class ContextError extends LanternError {
  override name: string = "ContextError";
  /** The number of tokens, or a lower bound, if known. */
  readonly tokens: number | undefined;

  constructor(message: string, options?: ErrorOptions & { tokens?: number }) {
    super("context", message, options);
    this.tokens = options?.tokens;
  }
}

export class MemoryError extends LanternError {
  override name: string = "MemoryError";
  constructor(message: string, options?: ErrorOptions) {
    super("memory", message, options);
  }
}

export class DisposedError extends LanternError {
  override name: string = "DisposedError";
  constructor(what: string) {
    super("disposed", `${what} was used after dispose()`);
  }
}

export class AbortedError extends LanternError {
  override name: string = "AbortedError";
  constructor(what: string, options?: ErrorOptions) {
    super("aborted", `${what} was aborted`, options);
  }
}

export class SourceError extends LanternError {
  override name: string = "SourceError";
  constructor(message: string, options?: ErrorOptions) {
    super("source", message, options);
  }
}

export class WorkerError extends LanternError {
  override name: string = "WorkerError";
  constructor(message: string, options?: ErrorOptions) {
    super("worker", message, options);
  }
}

/** A thread that gave no sign of life and was terminated. */
export class HangError extends WorkerError {
  override name: string = "HangError";
}

/** The GPU was lost, and with it the model's state. The request itself is fine and can be repeated. */
export class DeviceLostError extends WorkerError {
  override name: string = "DeviceLostError";
}

/** The GPU had no memory left for a loaded model's next need. With fewer layers on the GPU the request continues. */
export class DeviceMemoryError extends DeviceLostError {
  override name: string = "DeviceMemoryError";
  /** Layers that were on it, the output counted as one; undefined: not known. */
  layers: number | undefined;
}

/** The browser tab that computed the request was closed, or is cut off. The request itself is fine and can be repeated. */
export class TabClosedError extends WorkerError {
  override name: string = "TabClosedError";
}

/** The engine died or hung and is being restarted. The request itself is fine and can be repeated. */
export class RestartingError extends WorkerError {
  override name: string = "RestartingError";
}
