#!/usr/bin/env node
// The `lantern` command. Plain JavaScript that an old Node can parse: its one job is to find the Node that runs Lantern
// best (this one; else a Node 26 on this machine; else one that it downloads into Lantern's cache) and to start the
// command line there. If there is none, Node 22 and newer run it, too, with WebAssembly instead of machine code.
//
// LANTERN_RUNTIME=off: stay on this Node, download none. LANTERN_RUNTIME=PATH: continue on that Node.
//
// CommonJS (package.json beside it): a third of the time that Node takes to load it as a module, and it is loaded by both Nodes.

"use strict";

// biome-ignore-start lint/style/useNodejsImportProtocol: Node before 12.20 does not know "node:"
const { existsSync, readFileSync } = require("fs");
const nodeModule = require("module");
const { basename, dirname, join } = require("path");
const { pathToFileURL } = require("url");
const { privateFolder } = require("./private-folder.js");
const {
  endWithParent,
  findRuntime,
  pinnedRuntime,
  restart,
  restartedMark,
} = require("./runtime.js");
const { whyUntrusted } = require("./trusted-path.js");

// biome-ignore-end lint/style/useNodejsImportProtocol: see above

const bestMajor = 26;
const leastMajor = 22;
const mostMsAfterFailure = 3000;
const leastToDownload = 20; // has the requirements of a download: fetch, and all of the syntax

const root = dirname(__dirname);
const major = Number(process.versions.node.split(".")[0]);
const args = process.argv.slice(2);
// A checkout runs its sources, or bundles of exactly these; the published package has only dist.
const isCheckout = existsSync(join(root, "apps", "cli", "main.ts"));

const switchedOff = process.env.LANTERN_RUNTIME === "off";
const isSettled = switchedOff || process.env[restartedMark];
const isVersion = args.length === 1 && (args[0] === "--version" || args[0] === "-V");
const isBest = major >= bestMajor && !process.env.LANTERN_RUNTIME;
const otherNode = isSettled || isVersion || isBest ? {} : findRuntime();
// Windows looks for a program in the current folder first, before PATH: a program of that folder's owner would be run.
if (process.platform === "win32") process.env.NoDefaultCurrentDirectoryInExePath = "1";

if (isVersion) {
  console.log(JSON.parse(readFileSync(join(root, "package.json"), "utf8")).version);
} else if (isBest) start();
else if (otherNode.path !== undefined) restart(otherNode.path, __filename);
else if (major >= bestMajor || switchedOff || process.env[restartedMark]) startHere("");
else if (major >= leastMajor && needsNoSpeed()) startHere("");
else download();

/** Gets the Node 26 of this platform, and continues there; if that fails, this Node continues. */
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
  if (!hasDependencies()) return;
  const fetcher = pathToFileURL(join(root, "dist", "cli", "fetch-runtime.js")).href;
  import(fetcher)
    .then((module) => module.fetchRuntime(pinnedRuntime(), folder.path))
    .then((result) => {
      if (result.path !== undefined) restart(result.path, __filename);
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

/** Continues on this Node if it can. `why`: the reason against a better one; empty: none that must be printed. */
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
 * Whether all dependencies are in Lantern's own node_modules, or in one that Lantern lies in, and only users who could change Lantern
 * itself could have put them there; prints the reason if not. Node would look for them in every folder above, where another user may
 * have put a package of the same name. Checked before any of them is loaded.
 */
function hasDependencies() {
  if (process.versions.pnp) return true; // Yarn's Plug'n'Play: no folders, and no search
  const folders = [join(root, "node_modules")];
  for (let above = dirname(root); above !== dirname(above); above = dirname(above)) {
    if (basename(above) === "node_modules") folders.push(above);
  }
  const facts = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const missing = [];
  // If others can change Lantern itself, files beside it are no worse.
  const isOwn = whyUntrusted(root, root) === undefined;
  for (const name of Object.keys(facts.dependencies || {})) {
    const folder = folders.find((each) => existsSync(join(each, name, "package.json")));
    if (folder === undefined) missing.push(name);
    const refused = isOwn && folder !== undefined && whyUntrusted(join(folder, name), root);
    if (refused) return failed(refused);
  }
  if (missing.length === 0) return true;
  const how = isCheckout ? "npm ci" : "npm install";
  return failed(
    `${missing.join(", ")} is not in ${join(root, "node_modules")}${isCheckout ? "" : ", nor beside Lantern"}: ${how} brings what Lantern needs`,
  );
}

function failed(why) {
  console.error(`lantern: ${why}`);
  process.exitCode = 1;
  return false;
}

function start() {
  if (!hasDependencies()) return;
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

/** The command line's code. In a checkout: a thousand sources, or a bundle of them, which starts in a tenth of the time. */
function mainFile() {
  if (!isCheckout) return Promise.resolve(join(root, "dist", "cli", "main.js"));
  const source = join(root, "apps", "cli", "main.ts");
  const bundles = join(root, "scripts", "checkout-bundle.js");
  // A debugger needs the sources.
  const isDebugged = process.execArgv.some((flag) => /^--(inspect|cpu-prof|heap-prof)/.test(flag));
  if (isDebugged || !existsSync(bundles)) return Promise.resolve(source);
  return import(pathToFileURL(bundles).href).then(
    (module) => module.bundledMain(!needsNoSpeed()) || source,
  );
}

/** Ends a failed process, with anything still open; its output is flushed first. */
function end(code) {
  process.exitCode = code;
  if (code === 0) return;
  setInterval(() => {
    if (process.stdout.writableLength + process.stderr.writableLength === 0) process.exit(code);
  }, mostMsAfterFailure).unref();
}

/**
 * Keeps the compiled (and, for sources, type-stripped) modules between runs: half of the start-up time. Node runs the
 * code in that folder, so never in its default folder in /tmp, which any user can make first.
 */
function useCompileCache() {
  // Node has enabled it already if the variable is set.
  if (!nodeModule.enableCompileCache || process.env.NODE_COMPILE_CACHE) return;
  const folder = privateFolder("compile");
  if (folder.path === undefined) return;
  nodeModule.enableCompileCache(folder.path);
  process.env.NODE_COMPILE_CACHE = folder.path; // threads take it from the environment
}
