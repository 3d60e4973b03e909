// The values of @huggingface/jinja as our functions see them, and how Python writes them.

/** The limits of a rendering (budget.ts). */
export interface Costs {
  step(): void;
  take(units: number): void;
}

/** A value of the library. */
export interface JinjaValue {
  readonly type: string;
  readonly value: unknown;
}

/** Makes a value of the library of one of JavaScript's. */
export type Wrap = (value: unknown) => JinjaValue;

export type JinjaFunction = (args: readonly JinjaValue[]) => JinjaValue;

export function listOf(value: JinjaValue | undefined): JinjaValue[] {
  if (Array.isArray(value?.value)) return value.value as JinjaValue[];
  throw new Error(`expected a list, got ${value?.type ?? "nothing"}`);
}

/** Python's str(), and repr() for the members of lists and objects. */
export function pythonText(
  value: JinjaValue | undefined,
  budget: Costs,
  isOutside = false,
): string {
  budget.step();
  const inner = value?.value;
  if (typeof inner === "string") return isOutside ? inner : quoted(inner);
  if (typeof inner === "boolean") return inner ? "True" : "False";
  if (inner === null || inner === undefined) {
    return isOutside && value?.type !== "NullValue" ? "" : "None";
  }
  if (typeof inner === "number") {
    return value?.type === "FloatValue" && Number.isInteger(inner)
      ? inner.toFixed(1)
      : String(inner);
  }
  if (Array.isArray(inner)) {
    return `[${inner.map((item) => pythonText(item as JinjaValue, budget)).join(", ")}]`;
  }
  if (inner instanceof Map) {
    const members = [...(inner as Map<string, JinjaValue>)].map(
      ([key, item]) => `${quoted(key)}: ${pythonText(item, budget)}`,
    );
    return `{${members.join(", ")}}`;
  }
  return String(inner);
}

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text
    .replaceAll("\\", "\\\\")
    .replaceAll("\n", "\\n")
    .replaceAll("\r", "\\r")
    .replaceAll("\t", "\\t")
    .replaceAll(quote, `\\${quote}`);
  return quote + body + quote;
}
