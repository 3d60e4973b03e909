// Bundles what the `lantern` command runs: the command line and each kind of thread, with the code that they share in chunks.
// A thousand modules take ten times as long to start as the few that a command needs of these.
//
//     node scripts/bundle.js FOLDER     cli/main.js, cli/fetch-runtime.js, and start/: threads and chunks
//
// `npm run build` bundles into dist/; a checkout keeps bundles for itself (checkout-bundle.js). npm packages stay outside. Plain
// JavaScript, since any Node that starts a checkout may have to run it.

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Entries by their names: beside them in the folder, two folders below Lantern's as in src/. */
function entries() {
  const threads = readdirSync(join(root, "src", "threads"))
    .filter((name) => /^(compute|engine|measure|quantize|text)\.ts$/.test(name))
    .map((name) => [`start/${name.slice(0, -3)}`, `src/threads/${name}`]);
  return Object.fromEntries([
    ["cli/main", "src/cli/main.ts"],
    ["cli/fetch-runtime", "src/cli/fetch-runtime.ts"],
    ...threads,
  ]);
}

/** Node's modules, and npm packages that are installed beside Lantern. */
function outside() {
  const { dependencies, peerDependencies } = JSON.parse(
    readFileSync(join(root, "package.json"), "utf8"),
  );
  const names = Object.keys({ ...dependencies, ...peerDependencies });
  return [/^node:/, ...names.map((name) => new RegExp(`^${name}(/|$)`))];
}

/** Names the sources: what they generate may be kept for the same ones, and for no others. */
function nameOfSources() {
  const hash = createHash("sha256");
  const names = readdirSync(join(root, "src"), { recursive: true }).map(String).sort();
  for (const name of names) {
    if (name.endsWith(".ts"))
      hash.update(`${name}\0`).update(readFileSync(join(root, "src", name)));
  }
  return hash.digest("hex");
}

/** Returns all files that the bundles were made of, and the modules of each. */
export async function bundle(folder, { isSmall = false } = {}) {
  // import() alone would take a rolldown of any folder above, whoever made that.
  if (!existsSync(join(root, "node_modules", "rolldown", "package.json"))) {
    throw new Error("rolldown is not installed: npm ci brings it");
  }
  const { rolldown } = await import("rolldown");
  const build = await rolldown({
    cwd: root,
    input: entries(),
    platform: "node",
    external: outside(),
    logLevel: "warn",
    transform: {
      target: "es2024",
      define: { LANTERN_SOURCES: JSON.stringify(nameOfSources()) },
    },
  });
  const { output } = await build.write({
    dir: folder,
    format: "es",
    entryFileNames: ({ name }) => `${name}.${name.startsWith("cli/") ? "js" : "mjs"}`,
    // Node looks for a package.json to know what a .js file is.
    chunkFileNames: "start/[name].mjs",
    comments: false,
    // Names stay: they are in messages.
    minify: isSmall && { compress: false, mangle: false, codegen: { removeWhitespace: true } },
  });
  const files = await build.watchFiles;
  await build.close();
  return { files, chunks: output.filter(({ type }) => type === "chunk") };
}

if (process.argv[1] && import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) {
  const folder = process.argv[2];
  if (folder === undefined) throw new Error("bundle: name the folder to write into");
  rmSync(join(folder, "start"), { recursive: true, force: true });
  const { chunks } = await bundle(folder, { isSmall: true });
  const bytes = chunks.reduce((sum, { code }) => sum + code.length, 0);
  console.log(`${folder}: ${chunks.length} files, ${(bytes / 1e6).toFixed(1)} MB`);
}
