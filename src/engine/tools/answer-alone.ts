// An answer without tools: one generation, its reasoning apart from its text. The constraint on the text applies after the reasoning.
// With a schema the text is one JSON value, which the schema itself checks once more, for it may require more than a grammar can
// (refinements of zod).

import type { AnswerFormat } from "../../api/answer-format.ts";
import type { ChatAnswer, ChatMessage, GenerateOptions, GrammarSource } from "../../api/api.ts";
import { contextAdvice } from "../../base/context-advice.ts";
import { AbortedError, AnswerError } from "../../base/errors.ts";
import { AnswerReader, type AnswerStart, promptEnd } from "../../chat/answer/answer-reader.ts";
import { shownConversation } from "../../chat/answer/generic.ts";
import { grammarSource } from "../grammar-options.ts";
import {
  type AnsweringModel,
  type EmittedEvent,
  type EndedAnswer,
  readStep,
  stepMessage,
} from "./read-step.ts";
import type { ReadySchema } from "./tool-set.ts";

export interface AloneRequest {
  /** undefined: the answer is text. */
  readonly schema: ReadySchema | undefined;
  readonly generate: GenerateOptions;
  readonly signal: AbortSignal;
  readonly emit: (event: EmittedEvent) => void;
}

export async function answerAlone(
  model: AnsweringModel,
  asked: readonly ChatMessage[],
  { schema, generate: given, signal, emit }: AloneRequest,
): Promise<EndedAnswer> {
  const format = await model.answerFormat();
  const shown = format ? shownConversation(format, asked, [], false).messages : asked;
  const prompt = await model.render(shown, [], signal);
  const start = format && promptEnd(prompt?.text ?? "", format);
  const { schema: _s, regex: _r, choices: _c, grammar: _g, ...free } = given;
  const source = grammarSource(schema ? { ...given, grammar: { schema: schema.schema } } : given);
  const isTriggered = (given.grammarTriggers?.length ?? 0) > 0;
  const reader = format && start && readerOf(format, start, source !== undefined, !!schema);
  const generate: GenerateOptions = {
    ...free,
    ...(source && { grammar: isTriggered ? source : behindReasoning(source, format, start) }),
    ...(reader && { special: true }), // marks are often control tokens
  };
  const said = await readStep(model, { prompt, reader, step: 1, generate, signal, emit });
  const { content: text, reasoning, result } = said;
  const answer = { ...result, text, reasoning, calls: [], steps: [result], value: undefined };
  const value = schema && (await checkedValue(model, answer, schema));
  const message = stepMessage(said);
  return { answer: { ...answer, value }, messages: message ? [...asked, message] : [...asked] };
}

/** undefined: the model writes only text. */
function readerOf(
  format: AnswerFormat,
  start: AnswerStart,
  isHeld: boolean,
  isJson: boolean,
): AnswerReader | undefined {
  // Answers of several messages have their own headers, which a grammar of the text alone does without.
  const isPlain = format.frames ? isHeld : format.reasoning === undefined && !isJson;
  return isPlain ? undefined : new AnswerReader({ format, start, isJson });
}

function behindReasoning(
  content: GrammarSource,
  format: AnswerFormat | undefined,
  start: AnswerStart | undefined,
): GrammarSource {
  const marks = format?.frames ? undefined : format?.reasoning;
  if (marks === undefined || start?.reasoning === "closed") return content;
  const { start: opening, end } = marks;
  return { reasoning: start?.reasoning === "open" ? { end } : { start: opening, end }, content };
}

async function checkedValue(
  model: AnsweringModel,
  answer: ChatAnswer,
  schema: ReadySchema,
): Promise<unknown> {
  const { text, stopReason } = answer;
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch (cause) {
    const why =
      stopReason === "length"
        ? "maxTokens was reached. Allow more"
        : stopReason === "context"
          ? `the context was full. ${contextAdvice(model.info)}`
          : `it ended (${stopReason})`;
    const error = new AnswerError(`send(): the answer is no complete JSON: ${why}`, answer, {
      cause,
    });
    throw stopReason === "aborted" ? new AbortedError("the answer", { cause: error }) : error;
  }
  const checked = await schema.check(given);
  if (checked.problems === undefined) return checked.value;
  throw new AnswerError(
    `send(): the answer does not follow the schema: ${checked.problems.join("; ")}`,
    answer,
  );
}
