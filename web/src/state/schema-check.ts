// Checks a JSON Schema as it is typed, with the code that later enforces it (src/grammar), loaded with the first check. The
// error names the keyword and its path.

export interface SchemaCheck {
  /** Why a text is no schema that can be enforced; null: it is one. */
  problem: string | null;
  /** What it mentions and is not enforced. */
  notes: readonly string[];
}

export async function checkSchema(text: string): Promise<SchemaCheck> {
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    return { problem: `This is not JSON: ${(error as Error).message}`, notes: [] };
  }
  const { readSchema } = await import("./schema-reader.ts");
  return readSchema(schema);
}
