// Files that exist only as an example in a document: their code, runnable as if it lay where the document says.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
let made: string | undefined;

/** A folder for this test file. */
export function scratchFolder(): string {
  if (made !== undefined) return made;
  const folder = mkdtempSync(join(tmpdir(), "lantern-docs-"));
  made = folder;
  afterAll(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** Each such file, and its document. */
export const examples: Readonly<Record<string, string>> = {
  "src/dtypes/q1_0.ts": "docs/inside/add-a-dtype.md",
  "src/models/gptj.ts": "docs/inside/add-a-model.md",
  "test/dtypes/data/q1_0.json": "docs/inside/add-a-dtype.md",
  "src/backends/cpu/ops/square.ts": "docs/inside/add-an-op.md",
  "src/backends/webgpu/ops/square.ts": "docs/inside/add-an-op.md",
  "src/backends/counting/counting.ts": "docs/inside/add-a-backend.md",
  "test/conformance/counting.test.ts": "docs/inside/add-a-backend.md",
};

/** Writes an example as a file that finds its imports as if it lay where the document says; returns the path. */
export function writeExample(path: string): string {
  const text = readFileSync(join(root, examples[path]!), "utf8");
  const code = /```ts\n([\s\S]*?)```/.exec(text)![1]!;
  const folder = dirname(join(root, path));
  const placed = code.replace(/from "(\..*?)"/g, (_, from) => `from "${resolve(folder, from)}"`);
  const file = join(scratchFolder(), path.replaceAll("/", "-").replace(/ts$/, "mts"));
  writeFileSync(file, placed);
  return file;
}

export async function loadExample(path: string): Promise<unknown> {
  return await import(/* @vite-ignore */ pathToFileURL(writeExample(path)).href);
}
