// The example of docs/library/embeddings.md, run as it is written, on a tiny random model under the name of a real one.

import { execFileSync } from "node:child_process";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { tinyEncoder } from "../support/tiny-encoder.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

test("semantic search: every passage with its score, the best first", async () => {
  const text = readFileSync(join(root, "docs/library/embeddings.md"), "utf8");
  const example = /```ts\n(import .*?)```/s.exec(text)![1]!;
  expect(example.trimEnd().split("\n").length).toBeLessThanOrEqual(17);
  const name = { type: "string", value: "nomic-embed-text-v1.5" };
  const file = await tinyEncoder({ more: [["general.name", name]] });
  const folder = dirname(file.path);
  renameSync(file.path, join(folder, /open\("(.*?)"\)/.exec(example)![1]!));
  const index = pathToFileURL(join(root, "src/index.ts")).href;
  writeFileSync(join(folder, "search.mts"), example.replace('"lantern"', JSON.stringify(index)));
  const out = execFileSync(process.execPath, ["search.mts"], { cwd: folder, encoding: "utf8" });
  const lines = out.trimEnd().split("\n");
  const scores = lines.map((line) => Number(/^-?\d\.\d{3}/.exec(line)![0]));
  expect(scores).toEqual(scores.toSorted((a, b) => b - a));
  const passages = [...example.matchAll(/^ {2}"(.*)",$/gm)].map(([, one]) => one);
  expect(new Set(lines.map((line) => line.replace(/^\S+ /, "")))).toEqual(new Set(passages));
  file.remove();
});
