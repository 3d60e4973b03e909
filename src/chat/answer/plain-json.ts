// The form of calls that most models write.

import type { JsonForm } from "../../api/answer-format.ts";

/** `{"name": "f", "arguments": {...}}` alone, as most models write it. */
export const plainJson: JsonForm = {
  kind: "json",
  nameKey: "name",
  argumentsKey: "arguments",
  idKey: undefined,
  innerKey: undefined,
  isList: false,
};
