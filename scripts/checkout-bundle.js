// Manages the bundles that a checkout runs instead of its sources (bundle.js). They lie in node_modules/.cache/lantern, in one
// folder of several: a running program continues with the bundles that it started with, while others are made of newer sources.
//
// Stale code never runs: a bundle counts only if each of its source files is unchanged in size, times and number. It is code, so
// only users who could change the checkout itself may be able to change it.

// require() because import would have Node load the dependencies of all exports of its own modules.
const require = process.getBuiltinModule("node:module").createRequire(import.meta.url);
const {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} = require("node:fs");
const { join, relative } = require("node:path");
const { fileURLToPath } = require("node:url");
const { whyUntrusted } = require("../bin/trusted-path.js");

const root = fileURLToPath(new URL("..", import.meta.url));
const here = fileURLToPath(import.meta.url);
const maybe = { throwIfNoEntry: false };
const folder = join(root, "node_modules", ".cache", "lantern");
/** The time that a process has between reading which bundle is current and recording that it uses it. */
const mostMsToStart = 60_000;
/** Inputs of the bundler besides the files that it reports. */
const settings = [
  "bin/trusted-path.js",
  "package.json",
  "scripts/bundle.js",
  "scripts/checkout-bundle.js",
  "tsconfig.json",
  "node_modules/rolldown/package.json",
];

/** The command line's bundle, if it is that of the present sources; undefined: run the sources. `mayMake`: it is made if there is none. */
export function bundledMain(mayMake) {
  try {
    return current() ?? (mayMake && make() ? current() : undefined);
  } catch {
    return undefined; // a disk that is read-only, a folder that was removed meanwhile
  }
}

function current() {
  const slot = currentSlot();
  if (slot === undefined || whyUntrusted(join(slot, "facts.json"), root) !== undefined)
    return undefined;
  const facts = JSON.parse(readFileSync(join(slot, "facts.json"), "utf8"));
  if (!facts.every(([name, ...known]) => isSame(known, factsOf(name)))) return undefined;
  const mark = join(slot, `used-by-${process.pid}`);
  writeFileSync(mark, "");
  process.once("exit", () => rmSync(mark, { force: true }));
  return join(slot, "cli", "main.js");
}

function currentSlot() {
  const pointer = join(folder, "current");
  return existsSync(pointer) ? join(folder, readFileSync(pointer, "utf8")) : undefined;
}

/** Called for a thousand files at each start: hence no join(), which takes longer than the system. */
function factsOf(name) {
  const facts = statSync(root + name, maybe);
  return facts && [facts.size, facts.mtimeMs, facts.ctimeMs, facts.ino];
}

function isSame(known, present) {
  return present !== undefined && known.every((value, at) => value === present[at]);
}

/** Makes bundles in a process of its own, whose memory this one does not keep. Returns whether there are new ones. */
function make() {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  if (whyUntrusted(folder, root) !== undefined) return false;
  const lock = join(folder, "lock");
  if (!locked(lock)) return false; // another process makes one already
  try {
    const { spawnSync } = require("node:child_process");
    return spawnSync(process.execPath, [here, "make"], { stdio: "ignore" }).status === 0;
  } finally {
    rmSync(lock, { recursive: true, force: true });
  }
}

function locked(lock) {
  const age = Date.now() - (statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
  if (age > mostMsToStart) rmSync(lock, { recursive: true, force: true });
  try {
    mkdirSync(lock);
    return true;
  } catch {
    return false;
  }
}

/** A free folder that no process runs from, empty. */
function freeSlot() {
  const used = currentSlot();
  for (let number = 0; ; number++) {
    const slot = join(folder, String(number));
    if (slot === used) continue;
    const facts = statSync(slot, { throwIfNoEntry: false });
    if (facts && (Date.now() - facts.mtimeMs < mostMsToStart || hasUsers(slot))) continue;
    rmSync(slot, { recursive: true, force: true });
    mkdirSync(slot, { mode: 0o700 });
    return slot;
  }
}

function hasUsers(slot) {
  return readdirSync(slot).some((name) => {
    const [, pid] = /^used-by-(\d+)$/.exec(name) ?? [];
    return pid !== undefined && isRunning(Number(pid));
  });
}

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

async function makeHere() {
  const { bundle } = await import("./bundle.js");
  const slot = freeSlot();
  const since = Date.now();
  const { files } = await bundle(slot);
  const names = files
    .filter((file) => !file.startsWith("\0"))
    .map((file) => relative(root, file))
    .concat(settings);
  const facts = names.map((name) => [name, ...factsOf(name)]);
  // Sources that changed meanwhile are in the bundle, or not. Times of files have a coarser clock.
  const isRaced = facts.some(
    ([, , modified, changed]) => Math.max(modified, changed) > since - 100,
  );
  if (isRaced) throw new Error("a source was changed while it was bundled");
  writeFileSync(join(slot, "facts.json"), JSON.stringify(facts));
  writeFileSync(join(folder, `current-${process.pid}`), slot.slice(folder.length + 1));
  renameSync(join(folder, `current-${process.pid}`), join(folder, "current"));
}

if (process.argv[1] === here && process.argv[2] === "make") await makeHere();
