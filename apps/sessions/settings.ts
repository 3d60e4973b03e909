// The settings of a session: the system prompt, the tools and the sampling options. One schema checks them from every source:
// a request, an imported file, the database.

import * as z from "zod";
import type { GenerateOptions } from "../../src/index.ts";
import { generationTable } from "../../src/options/generation.ts";
import { type SamplingNumber, samplingNumbers } from "../../src/options/sampling.ts";
import { numberInput, textsInput } from "./option-input.ts";

/** Numbers are those of the rows of src/options/sampling.ts. */
export interface SessionSettings extends Partial<Record<SamplingNumber, number>> {
  /** Chat only; a story has no system turn. */
  systemPrompt?: string;
  maxTokens?: number;
  stop?: string[];
  /** Whether a model that can think first does; default: the model's own. */
  thinking?: boolean;
  /** Chat only: tools that the model may call. */
  tools?: SessionTool[];
  /** Chat only: answers are JSON that this JSON Schema allows. */
  schema?: boolean | Record<string, unknown>;
  /** Chat only: when the context is full, the model reads the latest messages and leaves out the oldest, instead of refusing. */
  window?: boolean;
  /** Chat only: a summary of an earlier chat, which the model reads before the first message. */
  summary?: string;
}

export interface SessionTool {
  name: string;
  description?: string;
  /** A JSON Schema of its arguments. */
  parameters?: Record<string, unknown>;
  /** The server of tools that runs it, after the person has confirmed the call; none: the person gives the result. */
  server?: string;
}

type Fields = Required<SessionSettings>;

const numberInputs = Object.fromEntries(
  Object.entries(samplingNumbers).map(([name, row]) => [
    name,
    numberInput(row.requests ?? row.range),
  ]),
) as Record<SamplingNumber, z.ZodType<number>>;

const fields: { readonly [Name in keyof Fields]: z.ZodType<Fields[Name]> } = {
  systemPrompt: z.string().max(1_000_000),
  ...numberInputs,
  maxTokens: numberInput(generationTable.maxTokens.requests),
  stop: textsInput(generationTable.stop),
  thinking: z.boolean(),
  tools: z
    .array(
      z.strictObject({
        name: z.string().regex(/^[\w.-]{1,64}$/, "expected 1 to 64 letters, digits, dots, - or _"),
        description: z.string().max(10_000).exactOptional(),
        parameters: z.record(z.string(), z.unknown()).exactOptional(),
        server: z.string().min(1).max(200).exactOptional(),
      }),
    )
    .max(128)
    .refine(
      (tools) => new Set(tools.map(({ name }) => name)).size === tools.length,
      "two tools have the same name",
    ),
  schema: z.union([z.boolean(), z.record(z.string(), z.unknown())], "expected a JSON schema"),
  window: z.boolean(),
  summary: z.string().max(1_000_000),
};

/** A change: null removes a setting; unnamed settings stay. */
export type SettingsChange = { [Name in keyof Fields]?: Fields[Name] | null };

const names = Object.keys(fields) as (keyof Fields)[];

export const settingsSchema: z.ZodType<SessionSettings> = z.strictObject(
  Object.fromEntries(names.map((name) => [name, fields[name].optional()])),
);

export const settingsChangeSchema: z.ZodType<SettingsChange> = z.strictObject(
  Object.fromEntries(names.map((name) => [name, fields[name].nullable().optional()])),
);

export function changeSettings(settings: SessionSettings, change: SettingsChange): SessionSettings {
  const entries = Object.entries({ ...settings, ...change });
  return Object.fromEntries(entries.filter(([, value]) => value !== null && value !== undefined));
}

/** The settings that are options of the engine. */
export function toGenerateOptions(settings: SessionSettings): GenerateOptions {
  const ofChat = ["systemPrompt", "thinking", "tools", "schema", "window", "summary"];
  const options = Object.entries(settings).filter(([name]) => !ofChat.includes(name));
  return Object.fromEntries(options) as GenerateOptions;
}
