// A compiled grammar as data, so that one thread compiles it for another: its positions, and the expressions that they name.

import type { GrammarSource, JsonSchemaOptions } from "../api/grammar-source.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { EDGE, PositionTable } from "./position-table.ts";
import { GrammarReader, type ReadGrammar } from "./read-grammar.ts";
import { type ExpressionList, listExpressions, takeExpressions } from "./regex/expression-list.ts";
import { Expressions } from "./regex/expressions.ts";

/** Edges that are taken over at a time: a millisecond or two. */
const TAKEN_AT_ONCE = 20_000;

export interface Program {
  readonly positions: PositionTable["data"];
  readonly expressions: ExpressionList;
  readonly notes: readonly string[];
  readonly hasSchema: boolean;
}

/** Refuses a source that is wrong or too dear, as GrammarCompiler does. Needs no trie of the vocabulary. */
export function compileProgram(
  source: GrammarSource,
  tokenizer: Tokenizer,
  schemaOptions: JsonSchemaOptions,
): Program {
  const of = new Expressions();
  const { positions, notes, hasSchema } = new GrammarReader(tokenizer, schemaOptions).read(
    source,
    of,
  );
  const { data } = positions;
  const roots = data.what.filter((_, edge) => namesExpression(data.kind[edge]!));
  return { positions: data, expressions: listExpressions(of, roots), notes, hasSchema };
}

/** The grammar among these expressions: in pieces, between which other work may run. */
export function* readProgram(
  { positions, expressions, notes, hasSchema }: Program,
  of: Expressions,
  begin: () => void,
): Generator<void, ReadGrammar> {
  begin();
  const taking = takeExpressions(of, expressions);
  let step = taking.next();
  for (; !step.done; step = taking.next()) {
    yield;
    begin(); // others have set budgets of their own
  }
  const ids = step.value;
  const what = positions.what.slice();
  for (let edge = 0; edge < what.length; edge++) {
    if (edge % TAKEN_AT_ONCE === TAKEN_AT_ONCE - 1) yield;
    if (namesExpression(positions.kind[edge]!)) what[edge] = ids.get(what[edge]!)!;
  }
  return { positions: new PositionTable({ ...positions, what }), notes, hasSchema };
}

function namesExpression(kind: number): boolean {
  return kind === EDGE.text || kind === EDGE.lexeme;
}
