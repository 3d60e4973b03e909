// Bundles the code that the `lantern` command runs: the command line and each kind of thread, with their common code in
// chunks. A thousand modules take ten times as long to start as the few that a command needs of these.
//
//     node scripts/bundle.js FOLDER     cli/main.js, cli/fetch-runtime.js, and start/: threads and chunks
//
// `npm run build` bundles into dist/; a checkout keeps bundles for itself (checkout-bundle.js). npm packages stay outside. Plain
// JavaScript, since any Node that starts a checkout may have to run it.

import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Script } from "node:vm";

const root = fileURLToPath(new URL("..", import.meta.url));
const keptCode = join(root, "scripts", "kept-code.js");

/** Entries by their names: next to each other in the folder, two folders below Lantern's as in apps/. */
function entries() {
  const threads = readdirSync(join(root, "src", "threads"))
    .filter((name) => /^(compute|engine|measure|quantize|text)\.ts$/.test(name))
    .map((name) => [`start/${name.slice(0, -3)}`, `src/threads/${name}`]);
  return Object.fromEntries([
    ["cli/main", "apps/cli/main.ts"],
    ["cli/fetch-runtime", "apps/cli/fetch-runtime.ts"],
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

/**
 * The entries that are loaded together when a model is opened: files, and all of their static imports. All modules that the same
 * set of entries needs are one chunk: Node takes longer to find a file than to run most of them, and each thread does it again. A
 * module's imports are in its own chunk or in one that more entries need, so chunks have no cycle. Modules that wait for the
 * platform are in another chunk than the platform.
 */
const together = {
  platform: ["src/platform/node.ts", "src/platform/node-native.ts"],
  compute: ["src/threads/compute.ts"],
  // By itself: it starts the compute threads before the other modules are loaded.
  engine: ["src/threads/engine.ts"],
  serve: [
    "src/threads/serve-engine.ts",
    "src/backends/cpu/native/native.ts",
    "src/tune/measured-choices.ts",
  ],
  main: ["apps/cli/main.ts"],
  run: ["apps/cli/commands/run.ts"],
};

/** The chunks of `together`, ordered by how many entries need them, the most first. */
function groups() {
  const names = Object.keys(together);
  let reach;
  const nameOf = (id, context) => {
    reach ??= names.map((name) => reached(together[name], context));
    return names.filter((_, at) => reach[at].has(id));
  };
  return names.map((_, at) => ({
    priority: names.length - at,
    debugName: `needed by ${names.length - at}`,
    name: (id, context) => {
      const needs = nameOf(id, context);
      return needs.length === names.length - at ? `for-${needs.join("-")}` : null;
    },
  }));
}

/** Files, and their static imports; of the public API, which the command line imports from, only the named ones. */
function reached(files, context) {
  // A test's checkout has a few of them.
  const found = new Set(files.map((file) => join(root, file)).filter((file) => existsSync(file)));
  const api = join(root, "src", "index.ts");
  const origins = new Map(
    imports(api).flatMap(({ names, from }) => names.map((name) => [name, join(api, "..", from)])),
  );
  for (const file of found) {
    const facts = context.getModuleInfo(file);
    if (!facts) throw new Error(`bundle: ${file} is not among the modules`);
    const named = facts.importedIds.includes(api)
      ? imports(file).filter(({ from }) => join(file, "..", from) === api)
      : [];
    const ids = named.flatMap(({ names }) => names.map((name) => origins.get(name)));
    for (const id of facts.importedIds.filter((id) => id !== api).concat(ids)) {
      if (context.getModuleInfo(id)) found.add(id);
    }
  }
  return found;
}

/** The values that a module imports or re-exports, by name. */
function imports(file) {
  if (!existsSync(file)) return [];
  const statements = readFileSync(file, "utf8").matchAll(
    /^(?:import|export) \{([^}]*)\} from "(\.[^"]*)";/gm,
  );
  return Array.from(statements, ([, names, from]) => ({
    from,
    names: names
      .split(",")
      .map((name) => name.trim().split(" as ")[0])
      .filter((name) => name !== "" && !name.startsWith("type ")),
  }));
}

/**
 * Node's modules without import statements: for these, Node makes a facade module of each that reads all of its exports, and so
 * loads their dependencies (streams, promises), on each thread.
 */
const withoutFacades = {
  name: "without-facades",
  renderChunk: (code) =>
    code.replace(
      /^import (\* as )?([\w$]+|\{[^}*]*\}) from ("node:[\w/]+");$/gm,
      (statement, _, names, from) =>
        /\bdefault\b/.test(names)
          ? statement
          : `const ${names.replaceAll(" as ", ": ")} = process.getBuiltinModule(${from});`,
    ),
};

/**
 * Divides chunks into their imports and exports, which stay a module, and their code, a script beside it that kept-code.js runs. Node
 * takes longer to find and link a module than to run most of them, so scripts need each other without modules; those that the start
 * needs keep their compiled functions from run to run.
 */
function divide(folder, chunks) {
  const parts = new Map(chunks.map((chunk) => [nameOfChunk(chunk.fileName), partsOf(chunk)]));
  // A script that others need must be complete at once: npm packages are modules, and a chunk with an await is not
  // finished yet.
  const isLinked = memoized((name, above) => {
    const { packages, isAsync, chunks, why } = parts.get(name) ?? { why: "not in this folder" };
    if (why !== undefined || packages.length > 0 || isAsync || above.includes(name)) return false;
    return chunks.every((needed) => isLinked(needed, [...above, name]));
  });
  for (const [name, part] of parts) {
    const missing = part.chunks?.find((needed) => !isLinked(needed, []));
    const why = part.why ?? (missing && `it needs ${missing}, which is no script`);
    if (why === undefined) writeScript(folder, name, part, (needed) => isLinked(needed, []));
    else if (name.startsWith("for-")) throw new Error(`bundle: ${name} stays a module: ${why}`);
  }
}

function memoized(ask) {
  const known = new Map();
  return (name, above) => {
    if (!known.has(name)) known.set(name, ask(name, above));
    return known.get(name);
  };
}

const nameOfChunk = (fileName) => fileName.replace(/^.*\/|\.mjs$/g, "");

/** A chunk's imports, exports and code. `why`: the reason why it cannot be a script. */
function partsOf({ code }) {
  const chunks = [];
  const packages = [];
  const needs = [];
  let body = code;
  for (;;) {
    const [statement, what = "", from] =
      /^\s*import\s*(?:([^"';]*?)\s*from\s*)?"([^"]*)";?/.exec(body) ?? [];
    if (statement === undefined) break;
    body = body.slice(statement.length);
    if (!from.startsWith("./")) {
      packages.push({ statement: statement.trim(), what });
      continue;
    }
    const needed = nameOfChunk(from);
    chunks.push(needed);
    const names = what.replace(/^\*\s*as\s/, "").replace(/([\w$]+)\s+as\s/g, "$1: ");
    needs.push(`${names && `const ${names} = `}$need("${needed}");`);
  }
  const exported = /\bexport\s*\{([^{}]*)\};?\s*$/.exec(body);
  if (!exported) return { why: "it does not end with its exports" };
  const pairs = exported[1].split(",").map((pair) => pair.trim().split(" as "));
  const values = pairs.filter(([own]) => own !== "");
  const changed = values.find(([own]) => new RegExp(`^let ${own}\\b`, "m").test(body));
  if (changed) return { why: `${changed[0]} may change after its export` };
  const inner = body
    .slice(0, exported.index)
    .replaceAll("import.meta.url", "$url")
    .replace(/(?<![.\w$])import\(/g, "$load(");
  const text = `${needs.join(" ")}${inner}\nreturn { ${values.map(([own, name = own]) => `${name}: ${own}`)} }; })\n`;
  const isAsync = !parses(`(function() { "use strict"; ${text}`);
  return { chunks, packages, values, text, isAsync };
}

function writeScript(folder, name, { packages, values, text, isAsync }, isLinked) {
  const names = packages.flatMap(({ what }) =>
    what
      .replace(/^\*\s*as\s|[{}]/g, "")
      .split(",")
      .map((each) => each.trim().split(" as ").pop())
      .filter(Boolean),
  );
  const opened = text.replace(/\$load\((["`])\.\/([\w-]+)\.mjs\1\)/g, (whole, _, other) =>
    isLinked(other) ? `$open("${other}")` : whole,
  );
  const start = `(${isAsync ? "async " : ""}function ($need, $open, $load, $url, $packages) { "use strict"; `;
  const given = names.length === 0 ? "" : `const { ${names} } = $packages; `;
  writeFileSync(join(folder, `start/${name}.cjs`), `${start}${given}${opened}`);
  const call = `${isAsync ? "await " : ""}__run("${name}", { ${names} })`;
  const lines = [
    ...packages.map(({ statement }) => statement),
    'import { run as __run } from "./kept-code.mjs";',
    `const { ${values.map(([own, exported = own]) => `${exported}: $${own}`)} } = ${call};`,
    `export { ${values.map(([own, exported = own]) => `$${own} as ${exported}`)} };`,
  ];
  writeFileSync(join(folder, `start/${name}.mjs`), `${lines.join("\n")}\n`);
}

function parses(text) {
  try {
    return new Script(text) !== undefined;
  } catch {
    return false;
  }
}

/** Names the sources: their generated files may be kept for the same sources only. */
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
  // import() alone would take a rolldown of any folder above, which another user may have made.
  if (!existsSync(join(root, "node_modules", "rolldown", "package.json"))) {
    throw new Error("rolldown is not installed: npm ci brings it");
  }
  const { rolldown } = await import("rolldown");
  const build = await rolldown({
    cwd: root,
    input: entries(),
    platform: "node",
    external: outside(),
    plugins: [withoutFacades],
    logLevel: "warn",
    checks: { ineffectiveDynamicImport: false }, // useful for a page that imports the modules by themselves
    transform: {
      target: "es2024",
      define: { LANTERN_SOURCES: JSON.stringify(nameOfSources()) },
    },
  });
  const { output } = await build.write({
    dir: folder,
    format: "es",
    entryFileNames: ({ name }) => `${name}.${name.startsWith("cli/") ? "js" : "mjs"}`,
    // Node looks for a package.json to know the kind of a .js file.
    chunkFileNames: "start/[name].mjs",
    codeSplitting: { groups: groups() },
    comments: false,
    // Names stay: they are in messages.
    minify: isSmall && { compress: false, mangle: false, codegen: { removeWhitespace: true } },
  });
  const files = await build.watchFiles;
  await build.close();
  const chunks = output.filter(({ type }) => type === "chunk");
  divide(
    folder,
    chunks.filter(({ fileName }) => fileName.startsWith("start/")),
  );
  copyFileSync(keptCode, join(folder, "start/kept-code.mjs"));
  return { files: [...files, keptCode], chunks };
}

if (process.argv[1] && import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) {
  const folder = process.argv[2];
  if (folder === undefined) throw new Error("bundle: name the folder to write into");
  rmSync(join(folder, "start"), { recursive: true, force: true });
  const { chunks } = await bundle(folder, { isSmall: true });
  const bytes = chunks.reduce((sum, { code }) => sum + code.length, 0);
  console.log(`${folder}: ${chunks.length} files, ${(bytes / 1e6).toFixed(1)} MB`);
}
