// The keywords of JSON Schema by this reader's treatment of them. A keyword of the standard that is in neither list is refused by
// name; one that the standard does not know is an annotation, as the standard says.

/** Keywords that do not constrain values. */
export const ANNOTATIONS: ReadonlySet<string> = new Set([
  "$anchor",
  "$comment",
  "$defs",
  "$dynamicAnchor",
  "$id",
  "$recursiveAnchor",
  "$schema",
  "$vocabulary",
  "contentEncoding",
  "contentMediaType",
  "contentSchema",
  "default",
  "definitions",
  "deprecated",
  "description",
  "examples",
  "id",
  "readOnly",
  "title",
  "writeOnly",
]);

export const UNSUPPORTED: ReadonlySet<string> = new Set(["disallow", "divisibleBy", "extends"]);
