// What can be wrong with a grammar: its text, a keyword that is not supported, or a size beyond the limits.

import { UsageError } from "../base/errors.ts";

export class GrammarError extends UsageError {
  override name: string = "GrammarError";
}

/** A regular expression or a grammar whose states would take too much memory or time. */
export class GrammarSizeError extends GrammarError {
  override name: string = "GrammarSizeError";
}

/** More work or memory than its budget. */
export class GrammarBudgetError extends GrammarSizeError {
  override name: string = "GrammarBudgetError";
}
