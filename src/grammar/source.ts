// What a grammar is made from: types only. gbnf.ts, json-schema/, regex/ and tags.ts read these; grammar.ts chooses among them.

import type { JsonSchemaOptions } from "./json-schema/read.ts";

export type GrammarSource =
  /** llama.cpp's notation. */
  | { readonly gbnf: string }
  | { readonly schema: unknown; readonly schemaOptions?: JsonSchemaOptions }
  /** The whole text matches; ECMAScript's syntax. */
  | { readonly regex: string }
  | { readonly choices: readonly string[] }
  | ComposedSource
  /** Free text; after each tag's `begin` its content, then its `end`, then free text again. */
  | { readonly tags: readonly StructuralTag[] }
  /** Reasoning, which is free text, and then an answer of the content. */
  | { readonly reasoning: ReasoningMarks; readonly content: GrammarSource };

/** Around reasoning. */
export interface ReasoningMarks {
  /** The model may open reasoning with this, or answer at once; undefined: reasoning is open from the start. */
  readonly start?: string;
  readonly end: string;
}

/** Parts of other grammars put together. */
export type ComposedSource =
  /** One after the other. */
  | { readonly sequence: readonly GrammarSource[] }
  | { readonly either: readonly GrammarSource[] }
  /** `low` times or more, at most `high` times if it is given. */
  | { readonly repeat: GrammarSource; readonly low: number; readonly high?: number }
  /** A text, with the vocabulary's control tokens where it has any for parts of it. */
  | { readonly literal: string }
  /** Any text with none of these in it. */
  | { readonly without: readonly string[] };

export interface StructuralTag {
  /** The text after which the content begins, such as <tool_call>. */
  readonly begin: string;
  readonly content: GrammarSource;
  readonly end: string;
  /** A beginning of `begin` that commits to it (default: all of it). */
  readonly trigger?: string;
}
