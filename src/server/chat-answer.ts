// An answer of a chat in OpenAI's shape: its reasoning, text and tool calls, as they come and as a whole.

import * as z from "zod";
import {
  type AnswerFormat,
  AnswerReader,
  type AnswerReaderOptions,
  type AnswerTool,
  promptEnd,
} from "../index.ts";
import type { ServedModel } from "./context.ts";
import { unsupportedField } from "./errors.ts";
import { newId } from "./openai-fields.ts";

/** llama.cpp's: where reasoning goes. `auto` is a field of its own. */
export const reasoningShape: {
  readonly reasoning_format: z.ZodType<ReasoningFormat | undefined>;
} = { reasoning_format: z.enum(["none", "auto", "deepseek"]).optional() };

type ReasoningFormat = "none" | "auto" | "deepseek";

/** What all answers to one request share; undefined: the text is the answer as it is. */
export async function answerPlan(
  { model }: ServedModel,
  prompt: string,
  tools: readonly AnswerTool[],
  reasoning: ReasoningFormat = "auto",
): Promise<AnswerReaderOptions | undefined> {
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

/** A delta of OpenAI's chunks. */
export type Delta = Readonly<Record<string, unknown>>;

interface ReadCall {
  id: string;
  name: string;
  arguments: string;
}

/** One answer. */
export class ChatAnswer {
  #reasoning = "";
  #content = "";
  readonly #calls: ReadCall[] = [];
  readonly #reader: AnswerReader | undefined;

  constructor(plan: AnswerReaderOptions | undefined) {
    this.#reader = plan && new AnswerReader(plan);
  }

  /** More text: what it adds. */
  push(text: string): Delta[] {
    if (this.#reader === undefined) {
      this.#content += text;
      return text === "" ? [] : [{ content: text }];
    }
    return this.#read(this.#reader.push(text));
  }

  /** What was held back until now. */
  end(): Delta[] {
    return this.#reader === undefined ? [] : this.#read(this.#reader.end());
  }

  get hasCalls(): boolean {
    return this.#calls.length > 0;
  }

  /** The whole answer. */
  message(): object {
    const tool_calls = this.#calls.map(({ id, name, arguments: text }) => ({
      id,
      type: "function",
      function: { name, arguments: text },
    }));
    return {
      role: "assistant",
      content: this.#content === "" && this.hasCalls ? null : this.#content,
      refusal: null,
      ...(this.#reasoning !== "" && { reasoning_content: this.#reasoning }),
      ...(this.hasCalls && { tool_calls }),
    };
  }

  #read(parts: ReturnType<AnswerReader["push"]>): Delta[] {
    const deltas: Delta[] = [];
    for (const part of parts) {
      if (part.kind === "content") {
        this.#content += part.text;
        deltas.push({ content: part.text });
      } else if (part.kind === "reasoning") {
        this.#reasoning += part.text;
        deltas.push({ reasoning_content: part.text });
      } else if (part.kind === "call") {
        const id = part.id === "" ? newId("call_") : part.id;
        this.#calls.push({ id, name: part.name, arguments: "" });
        const own = { name: part.name, arguments: "" };
        deltas.push({ tool_calls: [{ index: part.index, id, type: "function", function: own }] });
      } else if (part.kind === "arguments") {
        this.#calls[part.index]!.arguments += part.text;
        deltas.push({
          tool_calls: [{ index: part.index, function: { arguments: part.text } }],
        });
      }
      // An id that comes late is left out: the one that was given first stays.
    }
    return deltas;
  }
}
