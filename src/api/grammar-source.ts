// Public types for grammars: the constraints on a generation. Types only; src/grammar reads them.

export interface JsonSchemaOptions {
  /** No spaces and line ends between the parts of the JSON text (default false). */
  readonly compact?: boolean | undefined;
  /**
   * Fewer of the schema's texts, for models that write them: an object that lists properties has no others unless
   * additionalProperties says so, and a number has at most 17 digits before and after its point. A weak model adds keys and digits
   * as long as it may. Default false; true for generations.
   */
  readonly concise?: boolean | undefined;
}

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
  /** A text, with the vocabulary's control tokens for parts of it that have one. */
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
