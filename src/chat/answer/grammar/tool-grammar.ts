// The grammar of an answer that may or must call tools: reasoning and text as the model likes, then calls in the model's own
// format, with arguments that follow the schemas of the tools.

import type { AnswerFormat, AnswerTool } from "../../../api/answer-format.ts";
import type { GrammarSource } from "../../../api/grammar-source.ts";
import type { AnswerStart } from "../answer-reader.ts";
import { callStarts } from "../calls/calls.ts";
import { callsGrammar } from "./call-grammars.ts";
import { frameGrammars } from "./frame-grammars.ts";
import { either, literal, maybe, nothing, sequence, space, without } from "./parts.ts";

export interface ToolGrammarOptions {
  readonly format: AnswerFormat;
  /** The tools that may be called: only the named one, if one is named. */
  readonly tools: readonly AnswerTool[];
  /** The answer is a call; otherwise it may be text. */
  readonly isForced: boolean;
  /** Several calls in one answer. */
  readonly isParallel: boolean;
  /** The state in which the prompt leaves the model (promptEnd). */
  readonly start: AnswerStart;
  /** An answer without a call; undefined: any text. With it, text and calls are not in one answer. */
  readonly content?: GrammarSource | undefined;
}

/** undefined: the format has no calls. */
export function toolGrammar(options: ToolGrammarOptions): GrammarSource | undefined {
  const { format, tools, isForced, isParallel } = options;
  const { calls: own, frames } = format;
  if (tools.length === 0) return undefined;
  if (frames !== undefined) {
    const none = { start: "", end: "" };
    const shown = own ?? {
      section: none,
      call: none,
      separator: "",
      gap: "",
      form: { kind: "python" as const },
      endsReasoning: false,
    };
    const all = { format: shown, tools, isParallel, isLenient: false };
    return frameGrammars[frames](all, isForced);
  }
  if (own === undefined) return undefined;
  const all = { format: own, tools, isParallel, isLenient: !isForced };
  const calls = sequence(callsGrammar(all), turnEnd(format));
  const starts = callStarts(own, tools);
  const reasoning = reasoningGrammar(options, starts);
  if (isForced) return sequence(reasoning, space, calls);
  if (options.content !== undefined) {
    return sequence(reasoning, space, either([calls, options.content]));
  }
  if (starts.length === 0) {
    // Calls without any mark begin the answer: other text does not begin with a brace.
    const text = sequence({ regex: "[ \\t\\r\\n]{0,40}[^{ \\t\\r\\n]" }, without());
    return sequence(reasoning, either([sequence(space, calls), text, nothing]));
  }
  return sequence(reasoning, without(...starts), maybe(calls));
}

/** Reasoning before anything else, if the model shows any. It need not end where the answer may. */
function reasoningGrammar(
  { format, start, isForced }: ToolGrammarOptions,
  starts: readonly string[],
): GrammarSource {
  const { reasoning, calls } = format;
  if (reasoning === undefined || start.before?.content !== undefined) return nothing;
  const end = reasoning.end.trim();
  const stops = calls?.endsReasoning ? [end, ...starts] : [end];
  const close = sequence(literal(end), space);
  const rest = sequence(
    without(...stops),
    isForced && !calls?.endsReasoning ? close : maybe(close),
  );
  if (start.reasoning === "open" || start.before?.reasoning !== undefined) return rest;
  const own = sequence(literal(reasoning.start.trim()), rest);
  const isClosed = start.reasoning === "closed";
  return maybe(sequence(space, isClosed ? own : either([own, close])));
}

/** Text that ends the turn where the vocabulary has no token for it. */
function turnEnd({ turnEnds }: AnswerFormat): GrammarSource {
  return turnEnds.length === 0
    ? space
    : sequence(space, maybe(either(turnEnds.map((text) => literal(text)))));
}
