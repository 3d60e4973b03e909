// The grammar of answers with tools: calls in the model's own format, with arguments forced to follow the schemas. A schema that no
// grammar can enforce allows any object; its arguments are checked when the call is complete, as all are.

import type { AnswerFormat, AnswerTool } from "../../api/answer-format.ts";
import type { GrammarSource } from "../../api/api.ts";
import { UsageError } from "../../base/errors.ts";
import type { AnswerStart } from "../../chat/answer/answer-reader.ts";
import { toolGrammar } from "../../chat/answer/grammar/tool-grammar.ts";
import type { ReadyTool } from "./tool-set.ts";

/** Why a grammar cannot be used; undefined: it can. */
export type GrammarProblem = (source: GrammarSource) => Promise<string | undefined>;

/** Which calls the first step must make: any, or this tool; undefined: the model decides. */
export type ForcedCall = "required" | { readonly name: string } | undefined;

export class CallGrammar {
  readonly #format: AnswerFormat;
  readonly #tools: readonly AnswerTool[];
  readonly #problemOf: GrammarProblem;

  private constructor(
    format: AnswerFormat,
    tools: readonly AnswerTool[],
    problemOf: GrammarProblem,
  ) {
    this.#format = format;
    this.#tools = tools;
    this.#problemOf = problemOf;
  }

  static async of(
    format: AnswerFormat,
    tools: readonly ReadyTool[],
    problemOf: GrammarProblem,
  ): Promise<CallGrammar> {
    const known: AnswerTool[] = [];
    for (const { name, schema } of tools) {
      const problem = await problemOf({ schema });
      known.push(problem === undefined ? { name, parameters: schema } : { name });
    }
    return new CallGrammar(format, known, problemOf);
  }

  /** undefined: without a grammar, the model still calls as it has learned to. */
  async at(start: AnswerStart, forced: ForcedCall): Promise<GrammarSource | undefined> {
    const isNamed = typeof forced === "object";
    const tools = isNamed ? this.#tools.filter(({ name }) => name === forced.name) : this.#tools;
    const isForced = forced !== undefined;
    const all = { format: this.#format, tools, isForced, isParallel: !isNamed, start };
    const grammar = toolGrammar(all);
    const problem =
      grammar === undefined ? "its calls have no grammar" : await this.#problemOf(grammar);
    if (problem === undefined) return grammar;
    if (!isForced) return undefined;
    throw new UsageError(`send(): toolChoice: a call cannot be forced: ${problem}`);
  }
}
