// Work on texts that needs no weights: tokenizing, detokenizing, and the chat template.
//
// The engine's thread does it for small texts (host.ts), the text thread for large ones (text-host.ts): a megabyte
// takes a second, and no generation should stall that long.

import type { AnswerFormat } from "../api/answer-format.ts";
import type { ChatMessage, TemplateOptions } from "../api/api.ts";
import type { Check } from "../base/check.ts";
import { UsageError } from "../base/errors.ts";
import type { RenderedPrompt } from "../base/rendered-prompt.ts";
import { deriveAnswerFormat } from "../chat/answer/derive.ts";
import type { ChatTemplate } from "../chat/template.ts";
import { pairTokens } from "../tokenizers/pair.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import type { Prompt, TokenList, TokenPieces } from "./protocol.ts";

export interface TextSide {
  /** Its name, for messages. */
  readonly name: string;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate | undefined;
}

/** The tokens of any kind of prompt. */
export function promptTokens(side: TextSide, prompt: Prompt, check: Check): number[] {
  if (prompt.kind === "tokens") return prompt.tokens;
  const { tokenizer } = side;
  if (prompt.kind === "text") {
    const { addBos, isRendered } = prompt;
    const tokens = tokenizer.encode(prompt.prompt, { addSpecial: addBos, check });
    return addBos && isRendered ? withOneBos(side, tokens) : tokens;
  }
  if (prompt.kind === "pair") {
    const frame = tokenizer.pair ?? unpaired(side);
    return pairTokens(frame, prompt.query, prompt.document, (text) =>
      tokenizer.encode(text, { addSpecial: false, check }),
    );
  }
  const { messages, variables = {} } = prompt;
  const text = renderMessages(side, messages, { addGenerationPrompt: true, variables }, check);
  return withOneBos(side, tokenizer.encode(text, { addSpecial: true, check }));
}

/** Many templates write BOS themselves; a second one would confuse the model. */
function withOneBos({ tokenizer }: TextSide, tokens: number[]): number[] {
  const { bos } = tokenizer.special;
  return tokens[0] === bos && tokens[1] === bos ? tokens.slice(1) : tokens;
}

function unpaired({ name }: TextSide): never {
  throw new UsageError(
    `rerank(): the tokenizer of ${name} does not say how a query and a document are joined. Use a GGUF file of the model`,
  );
}

export function renderMessages(
  { template, name }: TextSide,
  messages: readonly ChatMessage[],
  { addGenerationPrompt = false, tools = [], variables = {} }: TemplateOptions,
  check: Check,
): RenderedPrompt {
  if (!template) {
    throw new UsageError(
      `${name} has no chat template, so it can only continue a text. Let it continue one, or choose a template by name with chatTemplate`,
    );
  }
  return template.render(messages, { addGenerationPrompt, tools, extra: variables, check });
}

/** The format of the model's answers, which is derived once. */
export function answerFormatOf({ template }: TextSide): AnswerFormat | undefined {
  if (template === undefined) return undefined;
  const known = answerFormats.get(template) ?? deriveAnswerFormat(template);
  answerFormats.set(template, known);
  return known;
}

const answerFormats = new WeakMap<ChatTemplate, AnswerFormat>();

/** Tokens in the form in which they are sent; more than `limit` are only counted. */
export function tokenList(tokens: readonly number[], limit: number): TokenList {
  const count = tokens.length;
  return { count, ids: count > limit ? undefined : Int32Array.from(tokens) };
}

/** The bytes that each token adds to a text. */
export function tokenPieces({ tokenizer }: TextSide, ids: Int32Array): TokenPieces {
  const ends = new Int32Array(ids.length);
  const pieces: Uint8Array[] = [];
  let size = 0;
  for (let i = 0; i < ids.length; i++) {
    const piece = tokenizer.tokenBytes(ids[i]!, { special: true });
    pieces.push(piece);
    size += piece.length;
    ends[i] = size;
  }
  const bytes = new Uint8Array(size);
  pieces.forEach((piece, i) => {
    bytes.set(piece, ends[i]! - piece.length);
  });
  return { bytes, ends };
}
