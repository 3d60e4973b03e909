// Checks the arguments of the public API before they are used. TypeScript callers get the same from the types; this is
// for plain JavaScript and for values from JSON, where a wrong one must not become a TypeError somewhere inside.

import type { ChatMessage, InspectOptions } from "../api/api.ts";
import { isIterable, wrongArgument } from "../base/arguments.ts";
import { UsageError } from "../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../base/options.ts";
import { show } from "../base/show.ts";
import { heldTypesText, isHeldType } from "../dtypes/held-types.ts";
import { isKvType, isKvTypePair, kvTypesText } from "../dtypes/kv-types.ts";

/** Checks the options of a call: an object with known options only, and a real AbortSignal. */
export function checkOptions<T extends object>(
  call: string,
  options: T,
  known?: OptionNames<T>,
): void {
  checkOptionNames(call, options, known);
  checkSignal((options as { signal?: unknown }).signal);
}

function checkSignal(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return;
  throw wrongArgument("signal", signal, "an AbortSignal");
}

export function checkText(text: unknown, what: string = "text"): asserts text is string {
  if (typeof text === "string") return;
  throw new UsageError(`${what}: got ${kindOf(text)}, expected a string`);
}

/** Token ids as a new list; the engine checks that they are in the vocabulary. */
export function checkedIds(ids: unknown, what: string = "token ids"): number[] {
  if (typeof ids === "string" || !isIterable(ids)) {
    throw wrongArgument(what, ids, "a list of token ids");
  }
  const list = [...ids];
  const wrong = list.findIndex(
    (id) => !(Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < 2 ** 31),
  );
  if (wrong < 0) return list as number[];
  throw new UsageError(
    `${what}: got ${show(list[wrong])} at ${wrong}, expected a whole number of at least 0`,
  );
}

export function checkedMessages(messages: unknown): ChatMessage[] {
  if (typeof messages === "string" || !isIterable(messages)) {
    throw wrongArgument("messages", messages, "a list of messages");
  }
  return [...messages].map((message, index) => {
    const { role, content } = (message ?? {}) as Partial<Record<keyof ChatMessage, unknown>>;
    const where = `messages[${index}]`;
    if (typeof message !== "object" || message === null || typeof role !== "string") {
      throw wrongArgument(where, message, "an object with a role and a content");
    }
    if (typeof content !== "string" && content !== undefined && content !== null) {
      throw wrongArgument(`${where}.content`, content, "text");
    }
    return { ...message } as ChatMessage;
  });
}

/** Checks a count given as an option; undefined stands for its default. */
export function checkCount(what: string, value: unknown, least: number = 0): void {
  if (value === undefined || value === Number.POSITIVE_INFINITY) return;
  if (Number.isSafeInteger(value) && (value as number) >= least) return;
  throw wrongArgument(what, value, `a whole number of at least ${least}`);
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : typeof value;
}

/** Checks the options that decide how much memory a model takes. */
export function checkMemoryOptions({ kvType, contextSize, weights }: InspectOptions): void {
  if (weights !== undefined && !isHeldType(weights)) {
    throw wrongArgument("weights", weights, heldTypesText);
  }
  if (kvType !== undefined && !isKvType(kvType) && !isKvTypePair(kvType)) {
    throw wrongArgument("kvType", kvType, `${kvTypesText}, or { k, v } with one of them each`);
  }
  if (contextSize !== undefined && !(Number.isSafeInteger(contextSize) && contextSize >= 1)) {
    throw wrongArgument("contextSize", contextSize, "an integer above 0");
  }
}
