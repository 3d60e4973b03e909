// An answer that is one JSON value of a schema: the grammar holds the model to it, after any reasoning, and the value is checked
// once more by the schema itself, which may say more than a grammar can (refinements of zod).

import type {
  ChatMessage,
  GenerateOptions,
  GenerationResult,
  GrammarSource,
  SchemaResult,
  TokenEvent,
} from "../../api/api.ts";
import { AbortedError, ModelError } from "../../base/errors.ts";
import { AnswerReader, type AnswerStart, promptEnd } from "../../chat/answer/answer-reader.ts";
import type { AnswerFormat } from "../../chat/answer/format.ts";
import { shownConversation } from "../../chat/answer/generic.ts";
import type { AnswerPart } from "../../chat/answer/sink.ts";
import type { AnsweringModel } from "./answer-with-tools.ts";
import type { ReadySchema } from "./tool-set.ts";

export interface SchemaRequest {
  readonly schema: ReadySchema;
  readonly generate: GenerateOptions;
  readonly signal: AbortSignal;
  readonly emit: (event: TokenEvent) => void;
}

/** Rejects if the answer is no such value: it was cut off, or a refinement refuses it. */
export async function answerWithSchema(
  model: AnsweringModel,
  asked: readonly ChatMessage[],
  { schema, generate, signal, emit }: SchemaRequest,
): Promise<SchemaResult<unknown>> {
  const format = await model.answerFormat();
  const shown = format ? shownConversation(format, asked, [], false).messages : asked;
  const prompt = await model.render(shown, [], signal);
  const start = format && promptEnd(prompt.text, format);
  // Answers of several messages have their own headers, which JSON alone does without.
  const reader =
    format && !format.frames && start
      ? new AnswerReader({ format, start, isJson: true })
      : undefined;
  let text = "";
  let reasoning = "";
  const read = (parts: readonly AnswerPart[]): string => {
    let added = "";
    for (const part of parts) {
      if (part.kind === "content") added += part.text;
      else if (part.kind === "reasoning") reasoning += part.text;
    }
    text += added;
    return added;
  };
  const plain = (piece: string): string => read([{ kind: "content", text: piece }]);
  const generation = model.generate(prompt, {
    ...generate,
    grammar: grammarOf(schema.schema, format, start),
    ...(reader && { special: true }), // marks are often control tokens
    signal,
  });
  for await (const event of generation.tokens()) {
    emit({ ...event, text: reader ? read(reader.push(event.text)) : plain(event.text) });
  }
  const last = reader ? read(reader.end()) : "";
  if (last !== "") emit({ id: -1, text: last });
  const result = await generation.result;
  return { ...result, text, reasoning, value: await checkedValue(text, result, schema) };
}

function grammarOf(
  schema: unknown,
  format: AnswerFormat | undefined,
  start: AnswerStart | undefined,
): GrammarSource {
  const content = { schema };
  const marks = format?.frames ? undefined : format?.reasoning;
  if (marks === undefined || start?.reasoning === "closed") return content;
  const { start: opening, end } = marks;
  return { reasoning: start?.reasoning === "open" ? { end } : { start: opening, end }, content };
}

async function checkedValue(
  text: string,
  { stopReason }: GenerationResult,
  schema: ReadySchema,
): Promise<unknown> {
  if (stopReason === "aborted") throw new AbortedError("the answer");
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch (cause) {
    const why =
      stopReason === "length"
        ? "maxTokens was reached. Allow more"
        : stopReason === "context"
          ? "the context was full. Open the model with a larger contextSize"
          : `it ended (${stopReason})`;
    throw new ModelError(`send(): the answer is no complete JSON: ${why}`, { cause });
  }
  const checked = await schema.check(given);
  if (checked.problems === undefined) return checked.value;
  throw new ModelError(
    `send(): the answer does not follow the schema: ${checked.problems.join("; ")}`,
  );
}
