// The grammar of an answer with tools: calls in the model's own format, arguments by the schemas of the tools. A schema that has
// no grammar is refused if the request insists on it (`strict`), and otherwise any object is allowed for that tool.

import {
  type AnswerReaderOptions,
  type AnswerTool,
  type GrammarSource,
  type Model,
  toolGrammar,
  UsageError,
} from "../../src/index.ts";
import { answerTools, type ToolUse } from "./chat-tools.ts";
import type { ServedModel } from "./context.ts";
import { invalidRequest, unsupportedField } from "./errors.ts";
import { type AskedGrammar, noGrammar, type UsableGrammar } from "./grammar-fields.ts";

/** @param plan How the answer is read. @param asked The grammar of an answer without a call. */
export async function toolGrammarOf(
  { model }: ServedModel,
  use: ToolUse,
  plan: AnswerReaderOptions,
  asked?: AskedGrammar,
): Promise<UsableGrammar> {
  const { choice, isParallel } = use;
  const all = answerTools(use);
  const content = asked && textGrammar(asked, plan);
  const tools = typeof choice === "object" ? all.filter(({ name }) => name === choice.name) : all;
  const isForced = choice !== "auto";
  const start = plan.start ?? { reasoning: "unknown", opening: "" };
  const make = (given: readonly AnswerTool[]): GrammarSource =>
    toolGrammar({ format: plan.format, tools: given, isForced, isParallel, start, content })!;
  const exact = make(tools);
  const whole = await tried(model, exact);
  if (typeof whole !== "string") return whole;
  const known = await enforceable(model, use, tools);
  const loose = make(known);
  const rest = known.some((tool, at) => tool !== tools[at]) ? await tried(model, loose) : whole;
  if (typeof rest !== "string") return rest;
  // Without a grammar the model still calls in its trained format; only a forced call depends on it.
  if (!isForced && !asked && !use.tools.some(({ function: own }) => own.strict)) return noGrammar;
  throw invalidRequest(`"tools": ${rest}`, "tools", "invalid_grammar");
}

/** The grammar of text beside calls: a JSON schema, if only calls and text need to be told apart. */
function textGrammar(
  { source, triggers, param }: AskedGrammar,
  plan: AnswerReaderOptions,
): GrammarSource {
  const isSchema = Object.hasOwn(source, "schema") && triggers.length === 0;
  if (isSchema && plan.format.frames === undefined) return source;
  throw unsupportedField(
    param,
    isSchema
      ? "together with tools, for a model that answers in several messages"
      : "together with tools, which have a grammar of their own. A JSON schema is possible",
  );
}

/** The tools, without those schemas that have no grammar. */
async function enforceable(
  model: Model,
  use: ToolUse,
  tools: readonly AnswerTool[],
): Promise<AnswerTool[]> {
  const known: AnswerTool[] = [];
  for (const tool of tools) {
    const found = await tried(model, { schema: tool.parameters ?? {} });
    const problem = typeof found === "string" ? found : undefined;
    const at = use.tools.findIndex(({ function: own }) => own.name === tool.name);
    if (problem !== undefined && use.tools[at]?.function.strict) {
      throw invalidRequest(
        `"tools[${at}]": "strict", but the schema of ${tool.name} cannot be enforced: ${problem}`,
        `tools[${at}]`,
        "invalid_grammar",
      );
    }
    known.push(problem === undefined ? tool : { name: tool.name });
  }
  return known;
}

/** A string: the reason why a grammar cannot be used. */
async function tried(model: Model, grammar: GrammarSource): Promise<UsableGrammar | string> {
  try {
    return { options: { grammar }, notes: await model.checkGrammar({ grammar }) };
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
}
