// The tools of one answer, checked and ready: each with its arguments' JSON Schema, which the model is shown, and a check of arguments
// by the schema that the caller gave, from any library.

import type { AnySchema, StandardSchema, Tool } from "../../api/api.ts";
import { messageOf, UsageError } from "../../base/errors.ts";
import { issueText } from "../../base/issues.ts";
import { plural } from "../../base/plural.ts";
import { show } from "../../base/show.ts";
import { schemaProblems } from "./schema-check.ts";

/** The most tools, as many as OpenAI takes. */
const mostTools = 128;

export interface ReadyTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of its arguments. */
  readonly schema: Readonly<Record<string, unknown>>;
  /** The arguments as the tool gets them, or the error in them. */
  check(given: unknown): Promise<Checked>;
  run: Tool["run"];
}

export type Checked =
  | { readonly value: unknown; readonly problems?: undefined }
  | { readonly problems: readonly string[] };

export function readyTools(tools: unknown, call: string): ReadyTool[] {
  if (typeof tools !== "object" || tools === null || Array.isArray(tools)) {
    throw new UsageError(
      `${call}: tools: got ${show(tools)}, expected an object of tools by name: { add: { description, parameters, run } }`,
    );
  }
  const all = Object.entries(tools);
  if (all.length > mostTools) {
    throw new UsageError(
      `${call}: tools: got ${plural(all.length, "tool")}, expected at most ${mostTools}`,
    );
  }
  return all.map(([name, tool]) => readyTool(name, tool, `${call}: tools.${name}`));
}

function readyTool(name: string, tool: unknown, where: string): ReadyTool {
  if (!/^[\w.-]{1,64}$/.test(name)) {
    throw new UsageError(
      `${where}: got ${show(name)} as a name, expected 1 to 64 letters, digits, dots, - or _`,
    );
  }
  const given = (typeof tool === "object" && tool !== null ? tool : {}) as Partial<Tool>;
  if (typeof given.run !== "function") {
    throw new UsageError(`${where}: got ${show(given.run)} as run, expected a function`);
  }
  const { description = "", parameters } = given;
  if (typeof description !== "string") {
    throw new UsageError(`${where}: got ${show(description)} as description, expected text`);
  }
  const wrong = Object.keys(given).find((key) => !toolKeys.includes(key));
  if (wrong !== undefined) {
    throw new UsageError(
      `${where}: got the unknown field ${show(wrong)}, expected ${toolKeys.join(", ")}`,
    );
  }
  const { schema, check } = readySchema(parameters ?? noArguments, `${where}: parameters`);
  return { name, description, schema, check, run: (args, call) => given.run!(args as never, call) };
}

const toolKeys: readonly string[] = ["description", "parameters", "run"];

const noArguments: AnySchema = { type: "object", properties: {} };

/** A schema as JSON Schema and as a check. */
export type ReadySchema = Pick<ReadyTool, "schema" | "check">;

/** A schema of a library or a JSON Schema. */
export function readySchema(given: unknown, where: string): ReadySchema {
  if ((typeof given !== "object" && typeof given !== "function") || given === null) {
    throw new UsageError(`${where}: got ${show(given)}, expected a schema of zod or a JSON Schema`);
  }
  if (!("~standard" in given)) {
    const schema = given as Readonly<Record<string, unknown>>;
    const check = async (value: unknown): Promise<Checked> => {
      const problems = await schemaProblems(schema, value);
      return problems.length === 0 ? { value } : { problems };
    };
    return { schema, check };
  }
  const standard = given as StandardSchema;
  return {
    schema: jsonSchemaOf(standard, where),
    check: async (value) => {
      const result = await standard["~standard"].validate(value);
      if (result.issues === undefined) return { value: result.value };
      return { problems: result.issues.slice(0, 8).map(issueText) };
    },
  };
}

/** Standard JSON Schema, which zod has since 4.2; before, and elsewhere, a method toJSONSchema(). */
function jsonSchemaOf(schema: StandardSchema, where: string): Readonly<Record<string, unknown>> {
  type Writer = (options: object) => Record<string, unknown>;
  const { vendor, jsonSchema } = schema["~standard"] as StandardSchema["~standard"] & {
    jsonSchema?: { input?: Writer };
  };
  const { toJSONSchema } = schema as { toJSONSchema?: Writer };
  try {
    if (typeof jsonSchema?.input === "function") {
      return jsonSchema.input({ target: "draft-2020-12" });
    }
    if (typeof toJSONSchema === "function") return toJSONSchema.call(schema, { io: "input" });
  } catch (cause) {
    throw new UsageError(
      `${where}: ${vendor} cannot write it as JSON Schema: ${messageOf(cause)}`,
      {
        cause,
      },
    );
  }
  throw new UsageError(
    `${where}: got a schema of ${show(vendor)}, which cannot be written as JSON Schema. Use zod 4.2 or later, or give a JSON Schema`,
  );
}
