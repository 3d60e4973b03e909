// Checks a JSON Schema as it is typed, with the code that later enforces it (src/grammar), loaded with the first check. The
// error names the keyword and its path.

import type { SchemaCheck } from "./schema-reader.ts";

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
