// Fields that may be long lists, checked in one quick pass: how many there are first, then each. A schema of the usual
// kind would try every member of a union on every item, and take seconds for what it then refuses.

import * as z from "zod";
import type { Content } from "./prompt.ts";

/** Prompts, or texts to embed, in one request. */
export const maxInputs = 4096;
/** A million token ids are more than any context holds. */
export const maxIds: number = 1 << 20;
/** Parts of one message. */
const maxParts = 10_000;
/** Every token of a large vocabulary. */
const maxBiases = 1 << 18;

/** A text or token ids. */
export type TextOrIds = string | number[];

const isId = (value: unknown): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0;

function isIds(value: unknown): value is number[] {
  return Array.isArray(value) && value.length <= maxIds && value.every(isId);
}

/** Token ids. */
export const tokenIds: z.ZodType<number[]> = z.custom<number[]>(
  isIds,
  `expected a list of at most ${maxIds} token ids (whole numbers, 0 or more)`,
);

/** A text, token ids, or a list of either. */
export const promptInput: z.ZodType<TextOrIds | TextOrIds[]> = z.custom<TextOrIds | TextOrIds[]>(
  (value) => {
    if (typeof value === "string") return true;
    if (!Array.isArray(value) || value.length === 0) return false;
    if (isId(value[0])) return isIds(value);
    if (value.length > maxInputs) return false;
    return value.every((one) => typeof one === "string" || (isIds(one) && one.length > 0));
  },
  `expected a string, token ids, or a list of at most ${maxInputs} of either`,
);

/** One or several, as a list. */
export function inputList(input: TextOrIds | TextOrIds[]): TextOrIds[] {
  const isOne = typeof input === "string" || typeof input[0] === "number";
  return (isOne ? [input] : input) as TextOrIds[];
}

/** A text, or a list of texts. */
export const textInput: z.ZodType<string | string[]> = z.custom<string | string[]>(
  (value) =>
    typeof value === "string" ||
    (Array.isArray(value) &&
      value.length <= maxInputs &&
      value.every((one) => typeof one === "string")),
  `expected a string, or a list of at most ${maxInputs} of them`,
);

/** A message's text, or parts with a type: contentText() of prompt.ts reads them. */
export const contentInput: z.ZodType<Content> = z.custom<Content>((value) => {
  if (typeof value === "string") return true;
  if (!Array.isArray(value) || value.length > maxParts) return false;
  return value.every(
    (part: unknown) =>
      typeof part === "object" && part !== null && "type" in part && typeof part.type === "string",
  );
}, `expected a string, or a list of at most ${maxParts} parts with a type`);

/** By token id; llama.cpp also takes pairs, with false for "never". */
export type LogitBias = Record<string, number> | [number, number | false][];

export const biasInput: z.ZodType<LogitBias> = z.custom<LogitBias>((value) => {
  if (Array.isArray(value)) return value.length <= maxBiases && value.every(isBias);
  if (typeof value !== "object" || value === null) return false;
  const entries = Object.entries(value);
  return (
    entries.length <= maxBiases &&
    entries.every(([id, bias]) => /^\d{1,9}$/.test(id) && Number.isFinite(bias))
  );
}, "expected numbers by token id");

function isBias(pair: unknown): boolean {
  if (!Array.isArray(pair) || pair.length !== 2) return false;
  return isId(pair[0]) && (pair[1] === false || Number.isFinite(pair[1]));
}

/** A list of at most so many items: no item of a longer one is looked at. */
export function listOf<T>(item: z.ZodType<T>, max: number): z.ZodType<T[]> {
  return z
    .custom<unknown[]>(
      (value) => Array.isArray(value) && value.length <= max,
      `expected a list of at most ${max}`,
    )
    .pipe(z.array(item));
}

/** More messages than any server is set to take: each of them is looked at. */
export const mostMessages = 16_384;

/** Objects whose fields are checked later, one by one. */
export const objectList: z.ZodType<Record<string, unknown>[]> = z
  .custom<Record<string, unknown>[]>(
    (value) => Array.isArray(value) && value.length <= mostMessages,
    `expected a list of at most ${mostMessages} objects`,
  )
  .check(({ value, issues }) => {
    const wrong = value.findIndex(
      (one: unknown) => typeof one !== "object" || one === null || Array.isArray(one),
    );
    if (wrong < 0) return;
    const input = value[wrong];
    issues.push({ code: "custom", path: [wrong], message: "expected an object", input });
  });
