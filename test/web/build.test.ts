// The built web app: small enough to load at once, and nothing in it that the content security policy would have to
// forgive.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { beforeAll, expect, test } from "vitest";
import { builtApp } from "./stage.ts";

const firstLoadKB = 150;

let web: string;
beforeAll(async () => {
  web = await builtApp();
});

const gzipped = (file: string): number => gzipSync(readFileSync(join(web, file))).length;

test(`the first load is at most ${firstLoadKB} KB, compressed`, () => {
  const html = readFileSync(join(web, "index.html"), "utf8");
  const named = [...html.matchAll(/(?:src|href)="\/([^"]+)"/g)].map(([, path]) => path!);
  expect(named.some((path) => path.endsWith(".js"))).toBe(true);
  expect(named.some((path) => path.endsWith(".css"))).toBe(true);
  // What the entry imports is loaded with it; what it imports later is not named by "from".
  const imported = named
    .filter((path) => path.endsWith(".js"))
    .flatMap((path) => [...readFileSync(join(web, path), "utf8").matchAll(/from"\.\/([^"]+)"/g)])
    .map(([, name]) => `assets/${name}`);
  const files = [...new Set(["index.html", ...named, ...imported])];
  const bytes = files.reduce((sum, file) => sum + gzipped(file), 0);
  console.log(`first load: ${(bytes / 1000).toFixed(1)} KB compressed, ${files.length} files`);
  expect(bytes).toBeLessThan(firstLoadKB * 1000);
});

function scripts(folder: string): [name: string, code: string][] {
  return readdirSync(join(web, folder))
    .filter((name) => name.endsWith(".js"))
    .map((name) => [name, readFileSync(join(web, folder, name), "utf8")]);
}

test("the threads of a tab that computes have all that they need, and nothing of Node's", () => {
  const names = scripts("threads").map(([name]) => name);
  expect(names.filter((name) => /^(thread|worker)-/.test(name))).toHaveLength(2);
  for (const [name, code] of scripts("threads")) {
    expect(code, name).not.toMatch(/(from|import\(|require\()\s*["'`](node:|fs|net|tls|@)/);
  }
});

test("the page has no script and no style of its own, and names no other place", () => {
  for (const page of ["index.html", "worker.html"]) {
    const html = readFileSync(join(web, page), "utf8");
    expect(html).not.toMatch(/<script(?![^>]*\bsrc=)[^>]*>/);
    expect(html).not.toMatch(/<style|style=|\son\w+=/);
  }
  for (const [name, code] of [...scripts("assets"), ...scripts("threads")]) {
    expect(code, name).not.toMatch(/\beval\(|new Function\(|import\("https?:/);
  }
  const styles = readdirSync(join(web, "assets")).filter((name) => name.endsWith(".css"));
  expect(styles.map((name) => readFileSync(join(web, "assets", name), "utf8")).join()).not.toMatch(
    /url\(|@import/,
  );
});
