// Public types for tools that a chat may call, and for answers that follow a schema. Part of api.ts.

import type {
  GenerateOptions,
  GenerationResult,
  GrammarOptions,
  StopReason,
  TokenEvent,
} from "./generate.ts";

/** A schema of any library that follows Standard Schema (standardschema.dev), such as zod 4. */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}

type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export type JsonSchema = Readonly<Record<string, unknown>>;

/** A schema of a library (zod), or a JSON Schema. */
export type AnySchema = StandardSchema | JsonSchema;

/** The type of a value of a schema: the library's; for a JSON Schema of arguments, any object. */
export type SchemaValue<S, Other = Record<string, unknown>> = S extends {
  readonly "~standard": { readonly types?: { readonly output: infer Output } | undefined };
}
  ? Output
  : S extends StandardSchema
    ? unknown
    : Other;

/** A function that the model may call. */
export interface Tool<S = AnySchema> {
  /** The purpose of the tool and when to call it: the model reads this. */
  description?: string | undefined;
  /** The schema of its arguments: an object. Default: it has none. Arguments that do not follow it never reach `run`. */
  parameters?: S | undefined;
  /** Its result goes to the model: text as it is, any other value as JSON. An error's message goes to the model, too. */
  run(args: SchemaValue<S>, call: ToolRun): unknown;
}

/** The facts about its call that a tool gets besides the arguments. */
export interface ToolRun {
  readonly id: string;
  /** Aborted when the answer is stopped or the time is over. */
  readonly signal: AbortSignal;
}

/** Tools by name: 1 to 64 letters, digits, dots, - or _. */
export type Tools<S> = { readonly [Name in keyof S]: Tool<S[Name]> };

/** A complete call with arguments that follow the tool's schema. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: unknown;
  /** The answer's first step is 1. */
  readonly step: number;
}

/** The outcome of a call. */
export interface ToolOutcome {
  readonly call: ToolCall;
  /**
   * ok: it ran; unknown: there is no such tool; arguments: they do not follow the schema; refused: by onCall; failed: it threw;
   * timeout: it took too long; steps: not run, since the limit of steps was reached; stopped: not run to its end, since the answer was.
   */
  readonly status:
    | "ok"
    | "unknown"
    | "arguments"
    | "refused"
    | "failed"
    | "timeout"
    | "steps"
    | "stopped";
  /** The text that the model gets. */
  readonly text: string;
  /** The result's length where only its beginning is in `text`. */
  readonly fullLength?: number;
}

export interface ToolLimits {
  /** The number of times that the model may answer, calls included (default 8). Then stopReason is "steps". */
  maxSteps?: number | undefined;
  /** Milliseconds for each call (default 60000). */
  toolTimeoutMs?: number | undefined;
  /** Characters of a result that the model is told (default 16384); a longer one is cut, and the model told so. */
  maxToolText?: number | undefined;
}

export interface ToolOptions<S>
  extends Omit<GenerateOptions, keyof GrammarOptions | "grammarTriggers">,
    ToolLimits {
  tools: Tools<S>;
  /** The first step's choice: the model decides (default), it calls some tool, or it calls this one. */
  toolChoice?: "auto" | "required" | { readonly name: keyof S & string } | undefined;
  /** Asked before every call. false, or a reason: the call is refused, and the model told so. */
  onCall?: ((call: ToolCall) => ToolDecision | Promise<ToolDecision>) | undefined;
  /** More variables for the template, such as enable_thinking. */
  variables?: Readonly<Record<string, unknown>> | undefined;
}

// biome-ignore lint/suspicious/noConfusingVoidType: a callback that only looks returns nothing
export type ToolDecision = boolean | string | undefined | void;

/** An answer as it comes. */
export type AnswerEvent =
  | { readonly kind: "reasoning"; readonly text: string }
  | { readonly kind: "content"; readonly text: string }
  /** The model begins a call; its arguments follow as JSON text. */
  | { readonly kind: "call"; readonly id: string; readonly name: string }
  | { readonly kind: "arguments"; readonly id: string; readonly text: string }
  /** The call is complete, allowed, and runs. */
  | { readonly kind: "run"; readonly call: ToolCall }
  | { readonly kind: "outcome"; readonly outcome: ToolOutcome };

/** The end of an answer, however it was asked for. Of several steps, text, tokens and timings are the last one's. */
export interface ChatAnswer<Value = undefined> extends Omit<GenerationResult, "stopReason"> {
  /** Without the reasoning before it, calls and their marks. */
  text: string;
  reasoning: string;
  /** All calls in their order; none without tools. */
  calls: readonly ToolOutcome[];
  /** "steps": the model still wanted to call tools when its steps were used up. */
  stopReason: StopReason | "steps";
  /**
   * With tools. template: the model's own; generic: its template knows no tools, so the system message described them and calls are JSON.
   */
  toolFormat?: "template" | "generic";
  /** The generation of each step, with everything that the model wrote: one without tools. */
  steps: readonly GenerationResult[];
  /** With a schema: the answer as the schema gives it. */
  value: Value;
}

/** A running answer: iterate it for text, `events()` for everything, or await `result`. Starts at once. */
export interface ChatGeneration<Value = undefined> extends AsyncIterable<string> {
  events(): AsyncIterable<AnswerEvent>;
  /** Its tokens, with the text of the answer: empty for tokens of reasoning, calls or marks. */
  tokens(): AsyncIterable<TokenEvent>;
  /** With a schema, it rejects with an AnswerError if the answer was cut off, or does not match the schema. */
  readonly result: Promise<ChatAnswer<Value>>;
}

/** Options of an answer that calls no tools. */
export interface SendOptions extends GenerateOptions {
  /** More variables for the template, such as enable_thinking. */
  variables?: Readonly<Record<string, unknown>> | undefined;
}

/** Options of an answer that is one JSON value of a schema. */
export interface SchemaOptions<S> extends Omit<SendOptions, "schema" | "grammar"> {
  /** A schema of a library (zod), or a JSON Schema: the answer follows it by force. */
  schema: S;
}
