// What package.json says of the package, without building it.
// Held against: the files of the repository.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, matchesGlob } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { programFolders, sourceFiles } from "../rules/scan.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const text = (path: string) => readFileSync(join(root, path), "utf8");
const manifest = JSON.parse(text("package.json")) as {
  files: string[];
  sideEffects: string[];
  repository?: string | { url: string };
};

test("files that do something when they are imported are named as such: bundlers drop the others", () => {
  const files = sourceFiles(...programFolders);
  const imported = files.flatMap(({ path, text }) =>
    [...text.matchAll(/^import "(\.[^"]+)";/gm)].map(([, name]) => join(path, "..", name!)),
  );
  const entries = files.map(({ path }) => path).filter((path) => path.startsWith("src/threads/"));
  expect(imported.length).toBeGreaterThan(0);
  const has = (path: string) => manifest.sideEffects.some((glob) => matchesGlob(`./${path}`, glob));
  for (const path of [...imported, ...entries]) {
    expect(has(path), path).toBe(true);
    const built = `dist/${path.replace(/ts$/, "js")}`;
    expect(has(built), built).toBe(true);
  }
  expect(has("src/index.ts") || has("dist/src/index.js")).toBe(false);
});

test("documents that comments of the sources name are in the package", () => {
  // The journal of measurements is not in the package.
  const named = sourceFiles(...programFolders).flatMap(
    ({ text }) => text.match(/\bdocs\/(?!journal)[\w/-]+\.md/g) ?? [],
  );
  expect(named.length).toBeGreaterThan(10);
  for (const path of new Set(named)) {
    expect(existsSync(join(root, path)), path).toBe(true);
    expect(
      manifest.files.some((glob) => matchesGlob(path, glob)),
      path,
    ).toBe(true);
  }
});

test("a repository is named only if it is the one that the documents name", () => {
  const { repository } = manifest;
  const documents = [
    "README.md",
    ...readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" }).map(
      (name) => `docs/${name}`,
    ),
  ];
  const cloned = documents
    .filter((path) => path.endsWith(".md"))
    .flatMap((path) => text(path).match(/(?<=git clone )(?:https|git|ssh)\S+/g) ?? []);
  const url = typeof repository === "string" ? repository : repository?.url;
  expect(url === undefined ? [] : [url.replace(/^git\+/, "")]).toEqual([...new Set(cloned)]);
});
