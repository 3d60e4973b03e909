// Checks a JSON Schema as it is typed, with the code that later enforces it (src/grammar), loaded with the first check. The
// error names the keyword and its path.

/** Why a text is no schema that can be enforced; null: it is one. */
export async function schemaProblem(text: string): Promise<string | null> {
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    return `This is not JSON: ${(error as Error).message}`;
  }
  const { schemaError } = await import("./schema-reader.ts");
  return schemaError(schema);
}
