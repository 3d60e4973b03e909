// The source of a grammar in the form that is sent between threads. gbnf.ts, json-schema/, regex/ and tags.ts read sources; grammar.ts
// chooses among them.

import type { GrammarSource } from "../api/grammar-source.ts";

/** A source as text, GBNF as it is and others as JSON: threads send and compare one text in far less time than many objects. */
export type GrammarText = string;

/** No JSON begins with it. Megabytes of GBNF need no escapes so. */
const GBNF = "=";

export function textOfSource(source: GrammarSource): GrammarText {
  return "gbnf" in source && typeof source.gbnf === "string"
    ? GBNF + source.gbnf
    : JSON.stringify(source);
}

export function sourceOfText(text: GrammarText): GrammarSource {
  return text.startsWith(GBNF)
    ? { gbnf: text.slice(GBNF.length) }
    : (JSON.parse(text) as GrammarSource);
}
