#!/usr/bin/env node
// The `lantern` command. Plain JavaScript that an old Node can parse: its one job is to get onto a Node that runs Lantern
// best (this one; else a Node 26 that is here; else one that it downloads into Lantern's cache) and to start the command
// line there. Where none can be had, Node 22 and newer run it, too, with WebAssembly instead of machine code.
//
// LANTERN_RUNTIME=off: stay on this Node, download none. LANTERN_RUNTIME=PATH: go on with that Node.

// biome-ignore-start lint/style/useNodejsImportProtocol: Node before 12.20 does not know "node:"
import { existsSync, readFileSync } from "fs";
import nodeModule from "module";
import { basename, dirname, join } from "path";
import { fileURLToPath, pathToFileURL } from "url";
import { privateFolder } from "./private-folder.js";
import { endWithParent, findRuntime, pinnedRuntime, restart, restartedMark } from "./runtime.js";

// biome-ignore-end lint/style/useNodejsImportProtocol: see above

const bestMajor = 26;
const leastMajor = 22;
const mostMsAfterFailure = 3000;
const leastToDownload = 20; // has what a download needs: fetch, and all of the syntax

const here = fileURLToPath(import.meta.url);
const root = dirname(dirname(here));
const major = Number(process.versions.node.split(".")[0]);
const args = process.argv.slice(2);
// A checkout runs its sources, or bundles of exactly these; the published package has only dist.
const isCheckout = existsSync(join(root, "src", "cli", "main.ts"));

const switchedOff = process.env.LANTERN_RUNTIME === "off";
const isSettled = switchedOff || process.env[restartedMark];
const otherNode =
  isSettled || (major >= bestMajor && !process.env.LANTERN_RUNTIME) ? {} : findRuntime();
// Windows looks for a program in the current folder first, before PATH: whoever filled that folder would be run.
if (process.platform === "win32") process.env.NoDefaultCurrentDirectoryInExePath = "1";

if (args.length === 1 && (args[0] === "--version" || args[0] === "-V")) {
  console.log(JSON.parse(readFileSync(join(root, "package.json"), "utf8")).version);
} else if (major >= bestMajor && !process.env.LANTERN_RUNTIME) start();
else if (otherNode.path !== undefined) restart(otherNode.path, here);
else if (major >= bestMajor || switchedOff || process.env[restartedMark]) startHere("");
else if (major >= leastMajor && needsNoSpeed()) startHere("");
else download();

/** Gets the Node 26 of this platform, and goes on there; whatever prevents that, this Node goes on. */
function download() {
  if (isCheckout)
    return startHere(otherNode.refused || "this checkout has none (npm ci brings it)");
  if (otherNode.refused) console.error(`lantern: ${otherNode.refused}`);
  if (pinnedRuntime() === undefined) {
    return startHere(`there is none for ${process.platform} on ${process.arch}`);
  }
  if (major < leastToDownload) return startHere(`this Node.js is too old to download it`);
  const folder = privateFolder("runtime");
  if (folder.path === undefined) return startHere(folder.refused);
  const fetcher = pathToFileURL(join(root, "dist", "cli", "fetch-runtime.js")).href;
  import(fetcher)
    .then((module) => module.fetchRuntime(pinnedRuntime(), folder.path))
    .then((result) => {
      if (result.path !== undefined) restart(result.path, here);
      else if (result.stopped) process.exitCode = 130;
      else startHere(result.failed);
    })
    .catch((error) => startHere(error.message));
}

/** Help and version are answered by any Node that can. */
function needsNoSpeed() {
  const quick = ["help", "--help", "-h", "--version", "-V"];
  return quick.includes(args[0]) || args.includes("--help") || args.includes("-h");
}

/** Goes on with this Node if it can. `why`: what kept it from a better one; empty: nothing that must be said. */
function startHere(why) {
  if (major >= leastMajor) {
    if (why !== "") {
      console.error(
        `lantern: going on with Node.js ${process.versions.node}, in WebAssembly; Node.js ${bestMajor} would be faster, but ${why}`,
      );
    }
    start();
    return;
  }
  const reason = why === "" ? "" : ` It could not be had automatically: ${why}.`;
  console.error(
    `lantern: this is Node.js ${process.versions.node} and Lantern needs Node.js ${leastMajor} or newer, best ${bestMajor}: install it from https://nodejs.org.${reason}`,
  );
  process.exitCode = 1;
}

/**
 * Dependencies that are neither in Lantern's own node_modules nor in one that Lantern lies in. Node would look for them in
 * every folder above, where another user may have put something of the same name.
 */
function missingDependencies() {
  if (process.versions.pnp) return []; // Yarn's Plug'n'Play: no folders, and no search
  const folders = [join(root, "node_modules")];
  for (let above = dirname(root); above !== dirname(above); above = dirname(above)) {
    if (basename(above) === "node_modules") folders.push(above);
  }
  const facts = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return Object.keys(facts.dependencies || {}).filter(
    (name) => !folders.some((folder) => existsSync(join(folder, name, "package.json"))),
  );
}

function start() {
  const missing = missingDependencies();
  if (missing.length > 0) {
    const how = isCheckout ? "npm ci" : "npm install";
    console.error(
      `lantern: ${missing.join(", ")} is not in ${join(root, "node_modules")}${isCheckout ? "" : ", nor beside Lantern"}: ${how} brings what Lantern needs`,
    );
    process.exitCode = 1;
    return;
  }
  endWithParent();
  useCompileCache();
  mainFile()
    .then((file) => import(pathToFileURL(file).href))
    .then((cli) => cli.main(args))
    .then(end)
    .catch((error) => {
      console.error("lantern: could not start:", error);
      end(1);
    });
}

/** The command line's code. Of a checkout, a thousand sources, or a bundle of them, which starts in a tenth of the time. */
function mainFile() {
  if (!isCheckout) return Promise.resolve(join(root, "dist", "cli", "main.js"));
  const source = join(root, "src", "cli", "main.ts");
  const bundles = join(root, "scripts", "checkout-bundle.js");
  // Who looks for a bug wants to see the sources.
  const isDebugged = process.execArgv.some((flag) => /^--(inspect|cpu-prof|heap-prof)/.test(flag));
  if (isDebugged || !existsSync(bundles)) return Promise.resolve(source);
  return import(pathToFileURL(bundles).href).then(
    (module) => module.bundledMain(!needsNoSpeed()) || source,
  );
}

/** Whoever says that it failed ends, whatever is still open; what it has written is read first. */
function end(code) {
  process.exitCode = code;
  if (code === 0) return;
  setInterval(() => {
    if (process.stdout.writableLength + process.stderr.writableLength === 0) process.exit(code);
  }, mostMsAfterFailure).unref();
}

/**
 * Keeps the compiled (and, for sources, type-stripped) modules between runs: half of the start-up time. Node runs what it
 * finds there, so never in its default folder in /tmp, which anybody can make first.
 */
function useCompileCache() {
  // Node has enabled it already where the variable is set.
  if (!nodeModule.enableCompileCache || process.env.NODE_COMPILE_CACHE) return;
  const folder = privateFolder("compile");
  if (folder.path === undefined) return;
  nodeModule.enableCompileCache(folder.path);
  process.env.NODE_COMPILE_CACHE = folder.path; // threads take it from the environment
}
