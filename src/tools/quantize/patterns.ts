// Parses types by name as the user writes them: "attn_v=q8_0". Strict: a pattern that makes no sense is refused before
// anything is opened.

import { messageOf, UsageError } from "../../base/errors.ts";
import { allDTypes, dtypeByName } from "../../dtypes/table.ts";
import type { TypePattern } from "./plan.ts";

export function patternsOf(texts: readonly string[]): TypePattern[] {
  return texts.map(patternOf);
}

function patternOf(text: string): TypePattern {
  const at = text.lastIndexOf("=");
  const [source, name] = [text.slice(0, Math.max(at, 0)), text.slice(at + 1)];
  if (source === "" || name === "") {
    throw new UsageError(
      `tensor type: got "${text}", expected a pattern, "=" and a type, as in attn_v=q8_0`,
    );
  }
  const dtype = dtypeByName(name);
  if (!dtype?.quantize) {
    const known = allDTypes().filter(({ quantize }) => quantize);
    throw new UsageError(
      `tensor type: "${text}": type "${name}" cannot be written. Expected one of ${known.map((known) => known.name).join(", ")}`,
    );
  }
  try {
    return { pattern: new RegExp(source), dtype, text };
  } catch (error) {
    throw new UsageError(
      `tensor type: "${text}": "${source}" is not a regular expression (${messageOf(error)})`,
      { cause: error },
    );
  }
}
