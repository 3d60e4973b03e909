// The errors of a grammar: in its text, of an unsupported keyword, or of a size beyond the limits.

import { UsageError } from "../base/errors.ts";

export class GrammarError extends UsageError {
  override name: string = "GrammarError";
}

/** A regular expression or a grammar with states that would take too much memory or time. */
export class GrammarSizeError extends GrammarError {
  override name: string = "GrammarSizeError";
}

/** More work or memory than its budget. */
export class GrammarBudgetError extends GrammarSizeError {
  override name: string = "GrammarBudgetError";
}
