// Removes the files of dist/ that no user of the package can reach: modules that are only in the bundles (bundle.js), such as
// those of the server, and types that no public type names.
//
//     node scripts/prune.js FOLDER

import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const folder = resolve(process.argv[2]);
/** The exports of package.json, and the entry of a page's worker. */
const entries = [
  ...["src/index", "apps/server/index"].flatMap((name) => [`${name}.js`, `${name}.d.ts`]),
  "src/threads/worker.js",
];
const kept = ["cli/main.js", "cli/fetch-runtime.js"];
/** Folders that tsc does not write. */
const others = ["start", "web"];

/** The files that are reached from the entries. */
function reached() {
  const found = new Set();
  const left = entries.map((name) => join(folder, name));
  while (left.length > 0) {
    const file = left.pop();
    if (found.has(file)) continue;
    found.add(file);
    const text = readFileSync(file, "utf8");
    for (const [, name] of text.matchAll(
      /(?:\bfrom|\bimport\(?|new URL\()\s*["'](\.[^"'\n]*)["']/g,
    )) {
      const script = join(dirname(file), name);
      const next = file.endsWith(".d.ts") ? script.replace(/(\.d)?\.(js|ts)$/, ".d.ts") : script;
      if (/\.(js|d\.ts)$/.test(next) && existsSync(next)) left.push(next);
    }
  }
  return found;
}

const wanted = reached();
for (const name of kept) wanted.add(join(folder, name));
let removed = 0;
for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
  const file = join(entry.parentPath, entry.name);
  const top = file.slice(folder.length + 1).split(/[\\/]/)[0];
  if (!entry.isFile() || others.includes(top) || wanted.has(file)) continue;
  rmSync(file);
  removed++;
}
console.log(`${folder}: ${removed} files removed that nothing reaches`);
