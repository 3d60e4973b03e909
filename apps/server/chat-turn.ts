// One message of a chat, prepared: its prompt, and the reader of its answer. All protocols use this file.

import {
  type AnswerFormat,
  type AnswerReaderOptions,
  type AnswerTool,
  type ChatMessage,
  type GenerateOptions,
  promptEnd,
  shownConversation,
} from "../../src/index.ts";
import { answerTools, shownTools, type ToolUse } from "./chat-tools.ts";
import type { ServedModel } from "./context.ts";
import { unsupportedField } from "./errors.ts";
import { type AskedGrammar, noGrammar, noteHeaders, usableGrammar } from "./grammar-fields.ts";
import { type ChatPromptOptions, chatText, type Refuse, textTokens, withSystem } from "./prompt.ts";
import type { ReasoningFormat, ReasoningOptions } from "./reasoning-fields.ts";
import { toolGrammarOf } from "./tool-options.ts";

export interface TurnRequest {
  readonly messages: readonly ChatMessage[];
  readonly use: ToolUse;
  readonly template: ChatPromptOptions;
  readonly reasoning?: ReasoningOptions | undefined;
  /** The grammar of the answer; with tools, of an answer without calls. */
  readonly grammar?: AskedGrammar | undefined;
  /** The field that the prompt comes from, for the error if it does not fit. */
  readonly param: string;
  readonly refuse?: Refuse;
  /** The beginning of the answer, if the prompt ends with it and the reader is given it, too. */
  readonly begun?: string;
}

export interface ChatTurn {
  readonly tokens: number[];
  /** How the answer is read; undefined: the text is the answer itself. */
  readonly plan: AnswerReaderOptions | undefined;
  /** Options of the generation that the reader needs. */
  readonly options: GenerateOptions;
  /** Headers for the client. */
  readonly headers: Readonly<Record<string, string>>;
}

/** The response to a request whose tools the model's template does not know. */
const genericHeaders = { "x-lantern-tool-format": "generic" };

export async function chatTurn(served: ServedModel, request: TurnRequest): Promise<ChatTurn> {
  const { use, template, param, refuse, begun = "", reasoning = {} } = request;
  const shown = await shownTurn(served, request.messages, use);
  const text = await chatText(served, shown.messages, { ...template, tools: shown.tools });
  const tokens = await textTokens(served, text, { param, refuse });
  const prompt = text.text.slice(0, text.text.length - begun.length);
  const tools = answerTools(use);
  const plan = answerPlan(shown.format, prompt, tools, reasoning.format);
  // The grammar of calls and the budget begin with the answer, so a continued answer has none.
  const isWhole = begun === "";
  const isCalling = plan !== undefined && tools.length > 0 && isWhole;
  const called = isCalling ? await toolGrammarOf(served, use, plan, request.grammar) : noGrammar;
  const grammar = tools.length === 0 ? await usableGrammar(served, request.grammar, plan) : called;
  const options: GenerateOptions = {
    ...grammar.options,
    ...(isWhole && budgetOptions(plan, reasoning)),
    ...(plan && { special: true }), // marks are often control tokens
  };
  const headers = { ...(shown.isGeneric && genericHeaders), ...noteHeaders(grammar) };
  return { tokens, plan, options, headers };
}

interface ShownTurn {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly unknown[] | undefined;
  /** undefined: there is no template. */
  readonly format: AnswerFormat | undefined;
  /** The messages describe the tools, since the template cannot. */
  readonly isGeneric: boolean;
}

/** The input of the template. */
export async function shownTurn(
  served: ServedModel,
  given: readonly ChatMessage[],
  use: ToolUse,
): Promise<ShownTurn> {
  const { model } = served;
  const messages = withSystem(served, given);
  const tools = shownTools(use);
  if (!model.info.hasChatTemplate) {
    if (answerTools(use).length > 0) {
      throw unsupportedField("tools", "this model cannot call tools: it has no chat template");
    }
    return { messages, tools, format: undefined, isGeneric: false };
  }
  const format = await model.answerFormat();
  if (format === undefined) return { messages, tools, format, isGeneric: false };
  return shownConversation(format, messages, tools ?? [], use.choice !== "auto");
}

const readings: Readonly<Record<ReasoningFormat, AnswerReaderOptions["reasoning"] & string>> = {
  none: "inline",
  auto: "apart",
  deepseek: "apart",
  "deepseek-legacy": "both",
};

function answerPlan(
  format: AnswerFormat | undefined,
  prompt: string,
  tools: readonly AnswerTool[],
  reasoning: ReasoningFormat = "auto",
): AnswerReaderOptions | undefined {
  if (format === undefined) return undefined;
  const isPlain =
    tools.length === 0 && format.reasoning === undefined && format.frames === undefined;
  if (isPlain) return undefined;
  return {
    format,
    tools,
    reasoning: readings[reasoning],
    start: promptEnd(prompt, format),
  };
}

/** Marks around reasoning in answers of several messages. */
const frameMarks: Readonly<Record<NonNullable<AnswerFormat["frames"]>, Marks | undefined>> = {
  harmony: { start: "<|channel|>analysis<|message|>", end: "<|end|>" },
  "to-header": { start: " to=self<|message|>", end: "<|eom|>" },
  functionary: undefined,
};

type Marks = Readonly<Record<"start" | "end", string>>;

/** A model that shows no reasoning has nothing that a budget could end. */
function budgetOptions(
  plan: AnswerReaderOptions | undefined,
  { budget: tokens = -1, message }: ReasoningOptions,
): GenerateOptions {
  if (plan === undefined || tokens < 0) return {};
  const { frames, reasoning } = plan.format;
  const marks = frames === undefined ? reasoning : frameMarks[frames];
  if (marks === undefined || plan.start?.before?.content !== undefined) return {};
  const { start, end } = marks;
  const isOpen = plan.start?.reasoning === "open" || plan.start?.before?.reasoning !== undefined;
  return { reasoningBudget: { tokens, start, end, isOpen, ...(message && { message }) } };
}
