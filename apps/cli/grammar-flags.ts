// The flags that restrict the text, under llama.cpp's names: --grammar, --json-schema and their files; and --regex and --choice,
// which it does not have.

import type { Command } from "commander";
import { messageOf } from "../../src/base/errors.ts";
import type { Logger } from "../../src/base/log.ts";
import { type GrammarSource, type Model, UsageError } from "../../src/index.ts";
import type { Terminal } from "../../src/platform/node-cli.ts";
import { repeatedFlag } from "./flag-values.ts";

export interface GrammarFlags {
  grammar?: string;
  grammarFile?: string;
  jsonSchema?: string;
  jsonSchemaFile?: string;
  regex?: string;
  choice?: string[];
}

export function addGrammarFlags(command: Command): Command {
  return command
    .option(
      "--grammar <gbnf>",
      "generate only texts of this grammar, in GBNF (docs/use/grammar.md)",
    )
    .option("--grammar-file <path>", "the same, from a file")
    .option(
      "-j, --json-schema <json>",
      `generate only JSON that this JSON schema allows, as in '{"type": "object", "properties": {"name": {"type": "string"}}}'; @path: from a file`,
    )
    .option("--json-schema-file <path>", "the same, from a file (also: -jf)")
    .option(
      "--regex <pattern>",
      "generate only a text that this regular expression matches as a whole",
    )
    .option("--choice <text>", "generate only one of these texts; repeatable", repeatedFlag);
}

/** The grammar that the flags ask for, with its files read. */
export async function grammarOptions(
  flags: GrammarFlags,
  terminal: Terminal,
): Promise<{ grammar?: GrammarSource }> {
  const given = Object.entries(names).filter(([key]) => flags[key as keyof GrammarFlags]);
  if (given.length > 1) {
    const [one, other] = given.map(([, name]) => name);
    throw new UsageError(`flags: got both ${one} and ${other}, expected one of them. Drop one`);
  }
  const { grammar, grammarFile, jsonSchema, jsonSchemaFile, regex, choice } = flags;
  if (grammar) return { grammar: { gbnf: grammar } };
  if (grammarFile) return { grammar: { gbnf: await terminal.readText(grammarFile) } };
  if (regex) return { grammar: { regex } };
  if (choice) return { grammar: { choices: choice } };
  const path = jsonSchemaFile ?? (jsonSchema?.startsWith("@") ? jsonSchema.slice(1) : undefined);
  if (path !== undefined)
    return { grammar: { schema: parsed(await terminal.readText(path), path) } };
  return jsonSchema ? { grammar: { schema: parsed(jsonSchema, "--json-schema") } } : {};
}

/** Warns of parts of a schema that are not enforced; throws if none of it can be. */
export async function warnOfGrammar(
  model: Pick<Model, "checkGrammar">,
  { grammar }: { grammar?: GrammarSource | undefined },
  log: Logger,
): Promise<void> {
  const notes = grammar === undefined ? [] : await model.checkGrammar({ grammar });
  for (const note of notes) log.warn(`Warning: ${note}\n`);
}

const names: Readonly<Record<keyof GrammarFlags, string>> = {
  grammar: "--grammar",
  grammarFile: "--grammar-file",
  jsonSchema: "--json-schema",
  jsonSchemaFile: "--json-schema-file",
  regex: "--regex",
  choice: "--choice",
};

function parsed(text: string, from: string): object | boolean {
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    throw new UsageError(
      `${from}: expected a JSON schema, got text that is no JSON: ${messageOf(error)}`,
    );
  }
  if (typeof schema === "boolean" || (typeof schema === "object" && schema !== null)) return schema;
  throw new UsageError(
    `${from}: expected a JSON schema, which is an object, got ${text.slice(0, 60)}`,
  );
}
