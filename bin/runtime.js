// Finds the Node that the command line runs on. Machine code needs Node 26 (node:ffi); runtimes.json pins one for each
// platform. The search order: the one that LANTERN_RUNTIME names, the one of a checkout's `npm ci`, the one that was
// downloaded into Lantern's cache before, and no others: in a folder above, another user may have put one. Plain
// JavaScript that an old Node can parse, like the launcher.

"use strict";

// biome-ignore-start lint/style/useNodejsImportProtocol: Node before 12.20 does not know "node:"
const {
  accessSync,
  constants,
  existsSync,
  lstatSync,
  readFileSync,
  realpathSync,
  utimesSync,
} = require("fs");
const { basename, dirname, join } = require("path");
const { privateFolder } = require("./private-folder.js");
const { whyUntrusted } = require("./trusted-path.js");

const root = dirname(__dirname);
const windows = process.platform === "win32";
const dayMs = 24 * 3600 * 1000;

/** Set for the second Node, so that it can never start a third: "exec", or "watch" if the first one waits for it. */
const restartedMark = "LANTERN_RESTARTED";
const watchedPipe = 3;

/** A thread's youngest objects get 4 MB instead of 1 at first: less is collected while a model is opened. For Nodes that we chose. */
const ownFlags = ["--min-semi-space-size=4"];

/** The Node that is pinned for this platform; undefined: there is none. */
function pinnedRuntime() {
  const table = JSON.parse(readFileSync(join(__dirname, "runtimes.json"), "utf8"));
  const facts = table.platforms[`${process.platform}-${process.arch}`];
  if (facts === undefined) return undefined;
  const name = `node-v${table.version}-${process.platform}-${process.arch}${windows ? ".exe" : ""}`;
  return Object.assign({ version: table.version, name: name }, facts);
}

/** A Node 26 that is on this machine already: its path; or, as a sentence, the reason why one is not used. */
function findRuntime() {
  const named = process.env.LANTERN_RUNTIME;
  if (named) return { path: named };
  const pinned = pinnedRuntime();
  if (pinned === undefined) return {};
  const beside = besideUs(pinned);
  if (beside.path !== undefined) return beside;
  const kept = downloaded(pinned);
  return kept === undefined ? beside : { path: kept };
}

/**
 * The Node that `npm ci` brings into a checkout (tools/runtime): in Lantern's own node_modules, or in the one that Lantern
 * lies in. No folder further up: Node's own search goes up to "/".
 */
function besideUs(pinned) {
  const modules = [join(root, "node_modules")];
  if (basename(dirname(root)) === "node_modules") modules.push(dirname(root));
  let refused;
  for (const folder of modules) {
    const node = join(folder, pinned.package, pinned.file);
    if (!existsSync(node)) continue;
    try {
      const why = whyUntrusted(node, root);
      // Without links: the checked path is the one that is started.
      if (why === undefined) return { path: realpathSync(node) };
      refused = refused || why;
    } catch (error) {
      refused = refused || `${node} is not used: ${error.message}`;
    }
  }
  return { refused: refused };
}

/** The Node that apps/cli/fetch-runtime.ts downloaded, checked and named. */
function downloaded(pinned) {
  const folder = privateFolder("runtime");
  if (folder.path === undefined) return undefined;
  const node = join(folder.path, pinned.name);
  try {
    const facts = lstatSync(node);
    if (!facts.isFile() || facts.size !== pinned.bytes) return undefined;
    if (process.getuid && facts.uid !== process.getuid()) return undefined;
    accessSync(node, constants.X_OK);
    if (Date.now() - facts.mtimeMs > dayMs) {
      const now = new Date();
      utimesSync(node, now, now); // records its last use, for cleaning up
    }
    return node;
  } catch {
    return undefined;
  }
}

/**
 * Continues on another Node: it replaces this process if Node can do that (22.15 and newer, not on Windows), so that
 * killing this process kills Lantern; else it is a child, which ends when this process ends.
 */
function restart(node, script) {
  const flags = process.env.LANTERN_RUNTIME ? [] : ownFlags;
  const args = flags.concat([script], process.argv.slice(2));
  const env = Object.assign({}, process.env);
  if (process.execve && !windows && isExecutable(node)) {
    env[restartedMark] = "exec";
    process.execve(node, [node].concat(args), env);
  }
  env[restartedMark] = "watch";
  const stdio = ["inherit", "inherit", "inherit", "pipe"];
  const child = require("child_process").spawn(node, args, { stdio: stdio, env: env });
  if (child.stdio[watchedPipe]) child.stdio[watchedPipe].on("error", () => {});
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  const pass = (signal) => {
    // A terminal sends Ctrl-C to both of us; passing it on would make one keystroke two.
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  };
  signals.forEach((signal) => {
    process.on(signal, pass);
  });
  child.on("error", (error) => {
    console.error(`lantern: could not start ${node}: ${error.message}`);
    process.exitCode = 1;
  });
  child.on("exit", (code, signal) => {
    signals.forEach((each) => {
      process.removeListener(each, pass);
    });
    if (signal) process.kill(process.pid, signal);
    else process.exitCode = code === null ? 1 : code;
  });
}

/** process.execve ends the process when it fails, so all conditions that can be checked are checked before. */
function isExecutable(node) {
  try {
    accessSync(node, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** In the child: when the Node that started it is gone (kill -9), the pipe between them closes, and the child ends, too. */
function endWithParent() {
  const mark = process.env[restartedMark];
  delete process.env[restartedMark]; // processes that this one starts must not inherit it
  if (mark !== "watch") return;
  const { Socket } = require("net"); // one of the two Nodes needs it, and not always
  const pipe = new Socket({ fd: watchedPipe, readable: true, writable: false });
  pipe.on("error", () => {});
  pipe.on("close", () => {
    process.kill(process.pid, "SIGTERM"); // closes the port and saves open data
    setTimeout(() => process.kill(process.pid, "SIGTERM"), 3000).unref(); // a second one ends it in any state
  });
  pipe.resume();
  pipe.unref();
}

// biome-ignore-end lint/style/useNodejsImportProtocol: see above

exports.restartedMark = restartedMark;
exports.pinnedRuntime = pinnedRuntime;
exports.findRuntime = findRuntime;
exports.restart = restart;
exports.endWithParent = endWithParent;
