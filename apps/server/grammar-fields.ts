// The fields of requests that restrict the text: OpenAI's response_format, llama.cpp's grammar and json_schema, Ollama's format.
// All become a grammar of the engine, compiled before a response begins: one that is wrong is a 400 with its field.

import * as z from "zod";
import {
  type AnswerReaderOptions,
  type GenerateOptions,
  type GrammarSource,
  type GrammarTrigger,
  UsageError,
} from "../../src/index.ts";
import type { ServedModel } from "./context.ts";
import { invalidRequest, unsupportedField } from "./errors.ts";

/** llama.cpp's fields. */
export interface GrammarFields {
  grammar?: string | undefined;
  json_schema?: Schema | undefined;
  grammar_lazy?: boolean | undefined;
  grammar_triggers?: readonly Trigger[] | undefined;
}

type Schema = boolean | Readonly<Record<string, unknown>>;

interface Trigger {
  readonly type: number;
  readonly value?: string | undefined;
  readonly token?: number | undefined;
}

const maxTriggers = 100;
const maxTriggerLength = 1000;

const schemaInput: z.ZodType<Schema> = z.union(
  [z.boolean(), z.record(z.string(), z.unknown())],
  "expected a JSON schema: an object",
);

export const grammarShape: { readonly [K in keyof GrammarFields]-?: z.ZodType<GrammarFields[K]> } =
  {
    grammar: z.string().optional(),
    json_schema: schemaInput.optional(),
    grammar_lazy: z.boolean().optional(),
    grammar_triggers: z
      .array(
        z.object({
          type: z.int().min(0).max(3),
          value: z.string().max(maxTriggerLength).optional(),
          token: z.int().min(-1).optional(),
        }),
      )
      .max(maxTriggers)
      .optional(),
  };

/** OpenAI's response_format of chats, with llama.cpp's schema of a json_object. */
export type ResponseFormat =
  | { readonly type: "text" }
  | { readonly type: "json_object"; readonly schema?: Schema | undefined }
  | { readonly type: "json_schema"; readonly json_schema: NamedSchema };

/** OpenAI's text.format of responses. */
export type TextFormat =
  | { readonly type: "text" }
  | { readonly type: "json_object" }
  | ({ readonly type: "json_schema" } & NamedSchema);

interface NamedSchema {
  readonly name?: string | undefined;
  readonly description?: string | null | undefined;
  readonly schema?: Schema | null | undefined;
  readonly strict?: boolean | null | undefined;
}

const namedSchema = {
  name: z.string().max(200).optional(),
  description: z.string().nullish(),
  schema: schemaInput.nullish(),
  strict: z.boolean().nullish(),
};
const kinds = 'expected "text", "json_object" or "json_schema" as its type';

export const responseFormatInput: z.ZodType<ResponseFormat> = z.discriminatedUnion(
  "type",
  [
    z.strictObject({ type: z.literal("text") }),
    z.strictObject({ type: z.literal("json_object"), schema: schemaInput.optional() }),
    z.strictObject({ type: z.literal("json_schema"), json_schema: z.strictObject(namedSchema) }),
  ],
  kinds,
);

export const textFormatInput: z.ZodType<TextFormat> = z.discriminatedUnion(
  "type",
  [
    z.strictObject({ type: z.literal("text") }),
    z.strictObject({ type: z.literal("json_object") }),
    z.strictObject({ type: z.literal("json_schema"), ...namedSchema }),
  ],
  kinds,
);

/** Ollama's format. */
export type OllamaFormat = "" | "json" | Schema;

export const ollamaFormatInput: z.ZodType<OllamaFormat> = z.union(
  [z.literal(""), z.literal("json"), z.record(z.string(), z.unknown())],
  'expected "json" or a JSON schema',
);

/** The grammar that a request asks for. */
export interface AskedGrammar {
  readonly source: GrammarSource;
  /** The field that it comes from. */
  readonly param: string;
  /** The triggers at which it begins; none: at the start of the answer. */
  readonly triggers: readonly GrammarTrigger[];
}

const anyObject: Schema = { type: "object" };

/** llama.cpp's fields; undefined: they set no grammar. */
export function llamacppGrammar(fields: GrammarFields): AskedGrammar | undefined {
  const { grammar, json_schema: schema } = fields;
  if (grammar && schema !== undefined) {
    throw invalidRequest('"json_schema" and "grammar" cannot be used together', "json_schema");
  }
  const triggers = fields.grammar_lazy ? lazyTriggers(fields.grammar_triggers ?? []) : [];
  if (schema !== undefined) return { source: { schema }, param: "json_schema", triggers };
  return grammar ? { source: { gbnf: grammar }, param: "grammar", triggers } : undefined;
}

/** llama.cpp's types of triggers: a token, a word, a pattern, a pattern of the whole text. */
function lazyTriggers(triggers: readonly Trigger[]): GrammarTrigger[] {
  if (triggers.length === 0) {
    throw invalidRequest(
      '"grammar_lazy": there are no triggers, expected some in "grammar_triggers"',
      "grammar_triggers",
    );
  }
  return triggers.map(({ type, value = "", token = -1 }, at) => {
    if (type === 0 && token >= 0) return { token };
    if (type === 1 && value !== "") return { text: value };
    if (type === 2 && value !== "") return { pattern: value };
    if (type === 3 && value !== "") return { pattern: anchored(value) };
    const param = `grammar_triggers[${at}]`;
    throw invalidRequest(`"${param}": expected a token for type 0, a value for the others`, param);
  });
}

/** llama.cpp's anchors. */
const anchored = (pattern: string): string =>
  `${pattern.startsWith("^") ? "" : "^"}${pattern}${pattern.endsWith("$") ? "" : "$"}`;

/** The grammar of a chat: response_format, or llama.cpp's fields. */
export function chatGrammar(
  fields: GrammarFields & { response_format?: ResponseFormat | undefined },
): AskedGrammar | undefined {
  const other = llamacppGrammar(fields);
  const { response_format: format } = fields;
  if (format === undefined || format.type === "text") return other;
  if (other?.param === "grammar") {
    throw invalidRequest('"response_format" and "grammar" cannot be used together', "grammar");
  }
  if (format.type === "json_schema") {
    const { schema } = format.json_schema;
    return jsonGrammar(schema ?? {}, "response_format.json_schema.schema");
  }
  // As in llama.cpp, json_schema is the schema of an object that has none.
  if (format.schema === undefined && other) return other;
  return jsonGrammar(format.schema ?? anyObject, "response_format");
}

/** The grammar of /v1/responses. */
export function textGrammar(
  fields: GrammarFields,
  format: TextFormat | null | undefined,
): AskedGrammar | undefined {
  const other = llamacppGrammar(fields);
  if (!format || format.type === "text") return other;
  if (other) {
    throw invalidRequest(`"text.format" and "${other.param}" cannot be used together`, other.param);
  }
  if (format.type === "json_object") return jsonGrammar(anyObject, "text.format");
  return jsonGrammar(format.schema ?? {}, "text.format.schema");
}

export function ollamaGrammar(format: OllamaFormat | undefined): AskedGrammar | undefined {
  if (format === undefined || format === "") return undefined;
  return jsonGrammar(format === "json" ? anyObject : format, "format");
}

function jsonGrammar(schema: Schema, param: string): AskedGrammar {
  return { source: { schema }, param, triggers: [] };
}

/** A grammar that was compiled. */
export interface UsableGrammar {
  /** Options of a generation with it. */
  readonly options: GenerateOptions;
  /** Parts of a schema that are not enforced (docs/use/grammar.md). */
  readonly notes: readonly string[];
}

export const noGrammar: UsableGrammar = { options: {}, notes: [] };

/** Compiles the grammar. `plan`: how its answer is read. */
export async function usableGrammar(
  { model }: ServedModel,
  asked: AskedGrammar | undefined,
  plan?: AnswerReaderOptions,
): Promise<UsableGrammar> {
  if (asked === undefined) return noGrammar;
  const options = behindReasoning(asked, plan);
  try {
    return { options, notes: await model.checkGrammar({ grammar: options.grammar! }) };
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw invalidRequest(`"${asked.param}": ${error.message}`, asked.param, "invalid_grammar");
  }
}

/** Characters of a header. */
const MOST_NOTES = 2000;

/** Headers that tell the client which parts are not enforced. */
export function noteHeaders({ notes }: UsableGrammar): Readonly<Record<string, string>> {
  if (notes.length === 0) return {};
  const text = notes.join("; ").replace(/[^\x20-\x7e]/g, "?");
  return { "x-lantern-schema-notes": text.slice(0, MOST_NOTES) };
}

/** The start of the answer in models that write several messages. */
const frameAnswers: Readonly<Record<FrameStyle, readonly string[]>> = {
  harmony: ["", " <|constrain|>json", " <|constrain|>JSON"].map(
    (more) => `<|channel|>final${more}<|message|>`,
  ),
  "to-header": ["to=user<|message|>"],
  functionary: [],
};

type FrameStyle = NonNullable<AnswerReaderOptions["format"]["frames"]>;

/** A grammar is about the answer: reasoning before it is free. */
function behindReasoning(
  { source, triggers, param }: AskedGrammar,
  plan: AnswerReaderOptions | undefined,
): GenerateOptions {
  if (triggers.length > 0) return { grammar: source, grammarTriggers: triggers };
  const { reasoning, frames } = plan?.format ?? {};
  const before = plan?.start?.before;
  if (frames !== undefined) {
    const texts = frameAnswers[frames];
    if (texts.length === 0 || before?.content !== undefined) {
      throw unsupportedField(param, "this model writes answers in parts that have no grammar yet");
    }
    return { grammar: source, grammarTriggers: texts.map((text) => ({ text, after: true })) };
  }
  const state = plan?.start?.reasoning ?? "unknown";
  if (reasoning === undefined || before?.content !== undefined) return { grammar: source };
  if (state === "closed") return { grammar: source };
  const { start, end } = reasoning;
  const marks = state === "open" ? { end } : { start, end };
  return { grammar: { reasoning: marks, content: source } };
}
