// Tools in requests for a chat, in every protocol: the callable tools, whether a call is required, and earlier calls.

import * as z from "zod";
import type { AnswerTool } from "../../src/index.ts";
import { invalidRequest } from "./errors.ts";
import type { IgnoredFields } from "./ignored-fields.ts";

/** OpenAI's limit. */
const MOST_TOOLS = 128;
/** Characters of a description, and of a schema as JSON text. */
const LONGEST_TEXT = 65_536;
/** Calls in one earlier answer. */
const MOST_CALLS = 1024;

/** A tool in the form for templates. */
export interface Tool {
  type: "function";
  function: {
    name: string;
    description?: string | undefined;
    parameters?: Record<string, unknown> | undefined;
    strict?: boolean | null | undefined;
  };
}

/** The calls that the model may make in one answer. */
export type ToolChoice = "none" | "auto" | "required" | { readonly name: string };

export interface ToolUse {
  readonly tools: readonly Tool[];
  readonly choice: ToolChoice;
  /** Several calls in one answer. */
  readonly isParallel: boolean;
  /** llama.cpp's field: whether calls are parsed at all. */
  readonly isParsed: boolean;
}

export const noToolUse: ToolUse = { tools: [], choice: "none", isParallel: true, isParsed: true };

export const toolName: z.ZodType<string> = z
  .string()
  .regex(/^[\w.-]{1,64}$/, "expected 1 to 64 letters, digits, dots, - or _");

export const toolDescription: z.ZodType<string> = z.string().max(LONGEST_TEXT);

/** A JSON Schema, not yet read. */
export const toolParameters: z.ZodType<Record<string, unknown>> = z.record(z.string(), z.unknown());

const toolInput = z.strictObject({
  type: z.literal("function", 'expected "function": only functions can be called'),
  function: z.strictObject({
    name: toolName,
    description: toolDescription.nullish().transform((text) => text ?? undefined),
    parameters: toolParameters.nullish().transform((schema) => schema ?? undefined),
    strict: z.boolean().nullish(),
  }),
});

export interface ToolFields {
  tools?: Tool[] | undefined;
  tool_choice?: string | Record<string, unknown> | undefined;
  parallel_tool_calls?: boolean | undefined;
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

/** Takes out the tools that only a vendor's cloud can run (web search and the like): the model is not shown them. */
export function skipTools(
  body: Record<string, unknown>,
  isCallable: (tool: Readonly<Record<string, unknown>>) => boolean,
  ignored: IgnoredFields,
): void {
  if (!Array.isArray(body.tools) || ignored.isStrict) return;
  body.tools = body.tools.filter((tool: unknown) => {
    if (typeof tool !== "object" || tool === null) return true; // the schema reports the error
    const own = tool as Readonly<Record<string, unknown>>;
    if (isCallable(own)) return true;
    ignored.see(`tools[].type=${String(own.type).slice(0, 60)}`);
    return false;
  });
}

/** The tools of OpenAI's chat requests. */
export function toolUse(fields: ToolFields): ToolUse {
  const { tools = [], tool_choice: given, parse_tool_calls = true } = fields;
  return checkToolUse({
    tools,
    choice: choiceOf(given),
    isParallel: fields.parallel_tool_calls ?? true,
    isParsed: parse_tool_calls,
  });
}

/** OpenAI's `tool_choice`: a word, or a function by name in one of two shapes. */
export function choiceOf(given: string | Record<string, unknown> | undefined): ToolChoice {
  if (given === undefined) return "auto";
  if (given === "none" || given === "auto" || given === "required") return given;
  if (typeof given === "object" && given.type === "function") {
    const named = (given.function ?? given) as { name?: unknown };
    if (typeof named.name === "string") return { name: named.name };
  }
  throw invalidRequest(
    '"tool_choice": expected "none", "auto", "required", or {"type": "function"} with the name of a function',
    "tool_choice",
  );
}

/** Refuses tools with the same name, and choices of unknown tools. */
export function checkToolUse(use: ToolUse): ToolUse {
  const { tools, choice } = use;
  if (tools.length > MOST_TOOLS) {
    throw invalidRequest(`"tools": got ${tools.length}, expected at most ${MOST_TOOLS}`, "tools");
  }
  const names = new Set<string>();
  for (const { function: own } of tools) {
    if (names.has(own.name)) {
      throw invalidRequest(`"tools": got two with the name ${JSON.stringify(own.name)}`, "tools");
    }
    names.add(own.name);
    const size = JSON.stringify(own.parameters ?? {}).length;
    if (size > LONGEST_TEXT) {
      throw invalidRequest(
        `"tools": the schema of ${own.name} has ${size} characters, expected at most ${LONGEST_TEXT}`,
        "tools",
      );
    }
  }
  if (typeof choice === "object" && !names.has(choice.name)) {
    const known = [...names].join(", ") || "none";
    throw invalidRequest(
      `"tool_choice": there is no tool ${JSON.stringify(choice.name.slice(0, 64))}. Tools: ${known}`,
      "tool_choice",
    );
  }
  if (choice === "required" && tools.length === 0) {
    throw invalidRequest(
      '"tool_choice": a call is required, but there are no tools',
      "tool_choice",
    );
  }
  return use;
}

/** The tools that the template shows: none if none may be called. */
export const shownTools = ({ tools, choice }: ToolUse): readonly Tool[] | undefined =>
  choice === "none" || tools.length === 0 ? undefined : tools;

/** The tools for the reader of answers: none if calls are not parsed. */
export function answerTools({ tools, choice, isParsed }: ToolUse): AnswerTool[] {
  if (choice === "none" || !isParsed) return [];
  return tools.map(({ function: { name, parameters } }) => ({ name, parameters }));
}

/** A call of an earlier answer, in the form for templates. */
export function earlierCall(name: string, given: unknown, id: string | undefined): object {
  return {
    ...(id !== undefined && { id }),
    type: "function",
    function: { name, arguments: given },
  };
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
  const read = z.array(callInput).max(MOST_CALLS).safeParse(calls);
  if (!read.success) {
    const [issue] = read.error.issues;
    const at = [path, ...(issue?.path ?? [])].join(".");
    throw invalidRequest(`"${at}": ${issue?.message ?? "expected a list of calls"}`, path);
  }
  return read.data.map(({ id, function: { name, arguments: given } }, at) =>
    earlierCall(name, earlierArguments(given, `${path}[${at}].function.arguments`), id),
  );
}

/** An object, or the JSON text of one. */
export function earlierArguments(given: string | object | undefined, path: string): unknown {
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
