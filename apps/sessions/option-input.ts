// The values of options in requests and stored settings: a schema for each row of src/options/.

import * as z from "zod";
import { isInRange, type NumberRange, rangeText } from "../../src/options/range.ts";
import {
  expectedOf,
  fieldRange,
  type OptionRow,
  type TextsRow,
  takes,
} from "../../src/options/row.ts";

export function numberInput(range: NumberRange): z.ZodType<number> {
  return z.custom<number>((value) => isInRange(value, range), `expected ${rangeText(range)}`);
}

export function textsInput({ most, longest }: TextsRow): z.ZodType<string[]> {
  return z.array(z.string().min(1).max(longest)).max(most);
}

/** What a field of a request may be. */
export function rowInput(row: OptionRow): z.ZodType {
  if (row.type === "number") return numberInput(fieldRange(row));
  if (row.type !== "texts")
    return z.custom((value) => takes(row, value), `expected ${expectedOf(row)}`);
  const { most, longest } = row;
  if (!row.single) return textsInput(row);
  return z.union(
    [z.string().min(1).max(longest), textsInput(row)],
    `expected a string or at most ${most} of them, each of 1 to ${longest} characters`,
  );
}
