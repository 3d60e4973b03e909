// Makes a fresh checkout ready: runs `npm ci` if the installed packages differ from package-lock.json, with one line of
// progress, and does nothing otherwise. `npm start` and `npm test` begin with it, so that it needs no mention in the guides.
// Plain JavaScript without dependencies: it runs on the Node that a newcomer has, before Node 26 is there.

import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const leastMajor = 20;

/** The packages of a lock file: path -> the lock's entry of it. */
function packagesOf(file) {
  try {
    return JSON.parse(readFileSync(join(root, file), "utf8")).packages;
  } catch {
    return undefined;
  }
}

const wanted = packagesOf("package-lock.json");
const paths = Object.keys(wanted).filter((path) => path.startsWith("node_modules/"));

/** npm records the installed packages. Optional packages may be missing: most are for other machines. */
function isInstalled() {
  const installed = packagesOf("node_modules/.package-lock.json");
  if (installed === undefined) return false;
  return paths.every((path) => {
    const has = installed[path];
    const { link, optional, peer, version } = wanted[path];
    if (has === undefined) return Boolean(optional || peer);
    return link || has.version === version;
  });
}

function install() {
  const npm = process.env.npm_execpath;
  const args = ["ci", "--loglevel=error", "--no-fund", "--no-audit"];
  // Without a path to npm (run by hand, not as a script of npm), the shell finds it.
  const [program, all] = npm ? [process.execPath, [npm, ...args]] : ["npm", args];
  const child = spawn(program, all, { cwd: root, stdio: ["ignore", "pipe", "pipe"], shell: !npm });
  const said = [];
  child.stdout.on("data", (bytes) => said.push(bytes));
  child.stderr.on("data", (bytes) => said.push(bytes));

  const since = Date.now();
  const show = () => {
    const there = paths.filter((path) => existsSync(join(root, path, "package.json"))).length;
    const seconds = Math.round((Date.now() - since) / 1000);
    process.stderr.write(
      `\rInstalling: ${there} of at most ${paths.length} packages, ${seconds} s `,
    );
  };
  const onTerminal = process.stderr.isTTY;
  if (onTerminal) show();
  else process.stderr.write("Installing the packages of package-lock.json (npm ci)\n");
  const timer = onTerminal ? setInterval(show, 500) : undefined;

  return new Promise((resolve) => {
    const end = (code, why) => {
      clearInterval(timer);
      if (onTerminal) process.stderr.write("\n");
      if (code !== 0) {
        process.stderr.write(Buffer.concat(said));
        process.stderr.write(
          `set-up: npm ci failed (${why}). Run it by hand to see more, then try again.\n`,
        );
      }
      resolve(code);
    };
    child.on("error", (error) => end(1, error.message));
    child.on("exit", (code, signal) => end(code ?? 1, signal ?? `exit code ${code}`));
  });
}

if (Number(process.versions.node.split(".")[0]) < leastMajor) {
  console.error(
    `set-up: this is Node.js ${process.versions.node}, and a checkout needs ${leastMajor} or newer: install it from https://nodejs.org`,
  );
  process.exitCode = 1;
} else if (!isInstalled()) {
  process.exitCode = await install();
}
