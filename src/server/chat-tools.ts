// Tools in OpenAI's chat requests: what may be called, and what was called and answered before.

import * as z from "zod";
import type { AnswerTool } from "../index.ts";
import { invalidRequest, unsupportedField } from "./errors.ts";

/** As many as OpenAI takes. */
const MOST_TOOLS = 128;

export interface Tool {
  type: "function";
  function: {
    name: string;
    description?: string | undefined;
    parameters?: Record<string, unknown> | undefined;
    strict?: boolean | null | undefined;
  };
}

const functionInput = z.strictObject({
  name: z.string().regex(/^[\w.-]{1,64}$/, "expected 1 to 64 letters, digits, dots, - or _"),
  description: z.string().optional(),
  parameters: z.record(z.string(), z.unknown()).optional(),
  strict: z.boolean().nullish(),
});

const toolInput = z.strictObject({
  type: z.literal("function", 'expected "function": only functions can be called'),
  function: functionInput,
});

export interface ToolFields {
  tools?: Tool[] | undefined;
  tool_choice?: string | Record<string, unknown> | undefined;
  parallel_tool_calls?: boolean | undefined;
  /** llama.cpp's: whether calls are read at all. */
  parse_tool_calls?: boolean | undefined;
}

export const toolShape: { readonly [K in keyof ToolFields]-?: z.ZodType<ToolFields[K]> } = {
  tools: z.array(toolInput).max(MOST_TOOLS).optional(),
  tool_choice: z
    .union([z.enum(["none", "auto", "required"]), z.looseObject({ type: z.string() })])
    .optional(),
  parallel_tool_calls: z.boolean().optional(),
  parse_tool_calls: z.boolean().optional(),
};

/** The tools that the model may call in this request. */
export function callableTools(fields: ToolFields): readonly Tool[] {
  const { tools = [], tool_choice: choice = "auto", parse_tool_calls = true } = fields;
  if (choice !== "none" && choice !== "auto") {
    throw unsupportedField(
      "tool_choice",
      'a call cannot be forced yet. Use "auto", with which the model decides, or "none"',
    );
  }
  const names = new Set<string>();
  for (const { function: own } of tools) {
    if (names.has(own.name)) {
      throw invalidRequest(`"tools": got two with the name ${JSON.stringify(own.name)}`, "tools");
    }
    names.add(own.name);
    if (own.strict) {
      throw unsupportedField("tools", '"strict": arguments are not held to their schema yet');
    }
  }
  return choice === "none" || !parse_tool_calls ? [] : tools;
}

/** What a reader of answers must know of them. */
export function answerTools(tools: readonly Tool[]): AnswerTool[] {
  return tools.map(({ function: { name, parameters } }) => ({ name, parameters }));
}

const callInput = z.object({
  id: z.string().optional(),
  type: z.literal("function").optional(),
  function: z.object({
    name: z.string(),
    arguments: z.union([z.string(), z.record(z.string(), z.unknown())]).optional(),
  }),
});

/** Calls of earlier answers: templates expect their arguments as objects, OpenAI's clients send JSON text. */
export function earlierCalls(calls: unknown, path: string): object[] {
  const read = z.array(callInput).safeParse(calls);
  if (!read.success) {
    const [issue] = read.error.issues;
    const at = [path, ...(issue?.path ?? [])].join(".");
    throw invalidRequest(`"${at}": ${issue?.message ?? "expected a list of calls"}`, path);
  }
  return read.data.map(({ id, function: { name, arguments: given } }, at) => ({
    ...(id !== undefined && { id }),
    type: "function",
    function: { name, arguments: argumentsOf(given, `${path}[${at}].function.arguments`) },
  }));
}

function argumentsOf(given: string | object | undefined, path: string): unknown {
  if (typeof given !== "string") return given ?? {};
  if (given.trim() === "") return {};
  try {
    return JSON.parse(given) as unknown;
  } catch {
    throw invalidRequest(
      `"${path}": expected JSON text, got ${JSON.stringify(given.slice(0, 60))}`,
      path,
    );
  }
}
