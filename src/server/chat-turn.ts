// One turn of a chat, prepared: its prompt, and how the answer to it is read. All protocols go through here.

import * as z from "zod";
import {
  type AnswerFormat,
  type AnswerReaderOptions,
  type ChatMessage,
  type GenerateOptions,
  promptEnd,
} from "../index.ts";
import { answerTools, shownTools, type ToolUse } from "./chat-tools.ts";
import type { ServedModel } from "./context.ts";
import { unsupportedField } from "./errors.ts";
import { type AskedGrammar, grammarOptions } from "./grammar-fields.ts";
import { type ChatPromptOptions, chatText, type Refuse, textTokens } from "./prompt.ts";
import { toolOptions } from "./tool-options.ts";

/** llama.cpp's: where reasoning goes. `auto` is a field of its own. */
export type ReasoningFormat = "none" | "auto" | "deepseek";

export const reasoningShape: {
  readonly reasoning_format: z.ZodType<ReasoningFormat | undefined>;
} = { reasoning_format: z.enum(["none", "auto", "deepseek"]).optional() };

export interface TurnRequest {
  readonly messages: readonly ChatMessage[];
  readonly use: ToolUse;
  readonly template: ChatPromptOptions;
  readonly reasoning?: ReasoningFormat | undefined;
  /** What the answer must look like. */
  readonly grammar?: AskedGrammar | undefined;
  /** The field that the prompt comes from, for the error if it does not fit. */
  readonly param: string;
  readonly refuse?: Refuse;
  /** The beginning of the answer, where the prompt ends with it and the reader is given it, too. */
  readonly begun?: string;
}

export interface ChatTurn {
  readonly tokens: number[];
  /** How the answer is read; undefined: the text is the answer as it is. */
  readonly plan: AnswerReaderOptions | undefined;
  /** What the generation needs so that it can be read. */
  readonly options: GenerateOptions;
}

export async function chatTurn(served: ServedModel, request: TurnRequest): Promise<ChatTurn> {
  const { messages, use, template, param, refuse, begun = "" } = request;
  const text = await chatText(served, messages, { ...template, tools: shownTools(use) });
  const tokens = await textTokens(served, text, param, refuse);
  const plan = await answerPlan(served, text.slice(0, text.length - begun.length), request);
  if (request.grammar && answerTools(use).length > 0) {
    throw unsupportedField(
      request.grammar.param,
      "together with tools, which have a grammar of their own",
    );
  }
  // The grammar of calls begins with the answer, so one that goes on has none.
  const tools = begun === "" ? await toolOptions(served, use, plan) : {};
  const grammar = request.grammar ? await grammarOptions(served, request.grammar, plan) : tools;
  return { tokens, plan, options: { ...grammar, ...(plan && { special: true }) } }; // marks are often control tokens
}

async function answerPlan(
  { model }: ServedModel,
  prompt: string,
  { use, reasoning = "auto" }: TurnRequest,
): Promise<AnswerReaderOptions | undefined> {
  const tools = answerTools(use);
  if (!model.info.hasChatTemplate) {
    if (tools.length > 0) throw noTools("it has no chat template");
    return undefined;
  }
  const format = await model.answerFormat();
  if (format === undefined) return undefined;
  if (tools.length > 0 && !knowsTools(format)) {
    throw noTools("its chat template does not say how it calls them");
  }
  const isPlain =
    tools.length === 0 && format.reasoning === undefined && format.frames === undefined;
  if (isPlain) return undefined;
  return {
    format,
    tools,
    reasoning: reasoning === "none" ? "inline" : "apart",
    start: promptEnd(prompt, format),
  };
}

const knowsTools = ({ calls, frames }: AnswerFormat): boolean =>
  calls !== undefined || frames !== undefined;

const noTools = (why: string): Error =>
  unsupportedField("tools", `this model cannot call tools: ${why}`);
