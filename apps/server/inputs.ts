// Fields that may be long lists, checked in one quick pass: first their length, then each item. An ordinary schema
// would try every member of a union on every item, and take seconds before it refuses.

import * as z from "zod";
import { asRendered, type RenderedPrompt } from "../../src/index.ts";
import type { Content } from "./prompt.ts";

/** Prompts, or texts to embed, in one request. */
const maxInputs = 4096;
/** A million token ids are more than any context holds. */
export const maxIds: number = 1 << 20;
/** Parts of one message. */
const maxParts = 10_000;
/** Every token of a large vocabulary. */
const maxBiases = 1 << 18;
/** Texts are tokenized one by one. */
const maxBiasTexts = 1024;
const maxBiasText = 1000;

/** A token id or a text. */
export type Piece = number | string;
/** One prompt: a text, ids and texts in one list, or llama.cpp's object. */
export type PromptOne = string | Piece[] | PromptObject;
/** With `template` as /apply-template gives it, special tokens count only there (RenderedPrompt). */
export interface PromptObject {
  prompt_string: string;
  template?: number[];
}
export type PromptInput = PromptOne | PromptOne[];

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

/** A list of ids that may contain texts: only a few, because each is tokenized. */
function isPieces(value: unknown): value is Piece[] {
  if (!Array.isArray(value) || value.length === 0 || value.length > maxIds) return false;
  let texts = 0;
  return value.every((one) => isId(one) || (typeof one === "string" && ++texts <= maxInputs));
}

/** A text, or a list of ids and texts. */
export const pieceInput: z.ZodType<string | Piece[]> = z.custom<string | Piece[]>(
  (value) => typeof value === "string" || isPieces(value),
  "expected a string, or a list of token ids and strings",
);

function isPromptObject(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { prompt_string, template = [], ...others } = value as Record<string, unknown>;
  const isOne = isIds(template) && asRendered({ text: prompt_string, template }) !== undefined;
  return isOne && Object.keys(others).length === 0;
}

/** A text, token ids, both mixed, or a list of these. */
export const promptInput: z.ZodType<PromptInput> = z.custom<PromptInput>((value) => {
  if (typeof value === "string" || isPromptObject(value)) return true;
  if (!Array.isArray(value) || value.length === 0) return false;
  if (!isPromptList(value as PromptInput)) return isPieces(value);
  if (value.length > maxInputs) return false;
  return value.every((one) => typeof one === "string" || isPromptObject(one) || isPieces(one));
}, `expected a string, token ids, or a list of at most ${maxInputs} of either`);

/** A list without a number in it is a list of prompts. */
export function isPromptList(input: PromptInput): input is PromptOne[] {
  return Array.isArray(input) && !input.some((part) => typeof part === "number");
}

/** One or several, as a list. */
export function inputList(input: PromptInput): PromptOne[] {
  return isPromptList(input) ? input : [input];
}

/** The text of a prompt, if it is one. */
export function promptText(prompt: PromptOne): string | RenderedPrompt | undefined {
  if (typeof prompt === "string") return prompt;
  if (Array.isArray(prompt)) return undefined;
  const { prompt_string: text, template } = prompt;
  return template === undefined ? text : { text, template };
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

/** Documents: texts, or objects with a text. */
export const documentInput: z.ZodType<(string | { text: string })[]> = z.custom<
  (string | { text: string })[]
>(
  (value) =>
    Array.isArray(value) &&
    value.length <= maxInputs &&
    value.every((one: unknown) => typeof one === "string" || hasText(one)),
  `expected a list of at most ${maxInputs} texts, or of objects with a "text"`,
);

function hasText(value: unknown): boolean {
  return (
    typeof value === "object" && value !== null && "text" in value && typeof value.text === "string"
  );
}

/** A message's text, or typed parts, which contentText() of prompt.ts reads. */
export const contentInput: z.ZodType<Content> = z.custom<Content>((value) => {
  if (typeof value === "string") return true;
  if (!Array.isArray(value) || value.length > maxParts) return false;
  return value.every(
    (part: unknown) =>
      typeof part === "object" && part !== null && "type" in part && typeof part.type === "string",
  );
}, `expected a string, or a list of at most ${maxParts} parts with a type`);

/** By token id or text; llama.cpp also accepts pairs, with false for "never". */
export type LogitBias = Record<string, number | false> | [number | string, number | false][];

export const biasInput: z.ZodType<LogitBias> = z.custom<LogitBias>((value) => {
  if (typeof value !== "object" || value === null) return false;
  const entries: unknown[] = Array.isArray(value) ? value : Object.entries(value);
  if (entries.length > maxBiases) return false;
  let texts = 0;
  return entries.every((pair) => {
    if (!Array.isArray(pair) || pair.length !== 2) return false;
    const [key, bias] = pair as [unknown, unknown];
    if (bias !== false && !Number.isFinite(bias)) return false;
    if (isId(key)) return true;
    if (typeof key !== "string" || key === "" || key.length > maxBiasText) return false;
    // A number must be a valid id; anything else is a text.
    return /^[+-]?\d+$/.test(key) ? /^\d{1,9}$/.test(key) : ++texts <= maxBiasTexts;
  });
}, "expected numbers by token id or text");

/** A list of at most `max` items: items of a longer one are not checked. */
export function listOf<T>(item: z.ZodType<T>, max: number): z.ZodType<T[]> {
  return z
    .custom<unknown[]>(
      (value) => Array.isArray(value) && value.length <= max,
      `expected a list of at most ${max}`,
    )
    .pipe(z.array(item));
}

/** More messages than any server accepts, because each of them is checked. */
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
