// Runs a chunk's code (bundle.js) with V8's compiled code of earlier runs: Node's own cache of modules has only the functions that ran
// while the module was loaded, and the others, compiled again at each start, were a seventh of its time.
//
// The code cache lies beside the cache of modules, in a folder that is this user's (bin/lantern.js), named by Node's version, the
// processor and V8's flags. V8 does not check its contents, so a file counts only if its checksum is right and it belongs to exactly
// this code: the same file by number, size and time. Copied into each bundle.

const { readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } =
  process.getBuiltinModule("node:fs");
const { getCompileCacheDir } = process.getBuiltinModule("node:module");
const { basename, join } = process.getBuiltinModule("node:path");
const { fileURLToPath } = process.getBuiltinModule("node:url");
const { Script } = process.getBuiltinModule("node:vm");
const { isMainThread, threadId } = process.getBuiltinModule("node:worker_threads");
const { crc32 } = process.getBuiltinModule("node:zlib");

/** Runs that add to the cache: the first may have been one that failed early. */
const mostRuns = 2;
/** Files of older bundles and other copies of Lantern. */
const mostFiles = 4;
const leastKept = 4000;
const headerBytes = 8; // the sum of all after it, the runs

const folderUrl = import.meta.url.replace(/[^/]*$/, "");
const folder = fileURLToPath(folderUrl);
const open = [];

/** The exports of each script that has run. */
const loaded = new Map();

/** The exports of a chunk; it runs once for each thread. `packages`: its module's imports for it. */
export function run(name, packages) {
  if (!loaded.has(name)) loaded.set(name, runFirst(name, packages));
  return loaded.get(name);
}

function runFirst(name, packages) {
  const file = join(folder, `${name}.cjs`);
  const source = readFileSync(file, "utf8");
  const place = isKept(name, source) ? placeOf(file) : undefined;
  const kept = place && read(place);
  const script = new Script(source, { filename: file, cachedData: kept?.data });
  const known = kept && !script.cachedDataRejected ? kept : { runs: 0 };
  if (place && known.runs < mostRuns) open.push({ script, place, known });
  const url = `${folderUrl}${name}.mjs`;
  return script.runInThisContext()(run, runLater, (from) => import(from), url, packages);
}

/** import() of a chunk: as there, the caller continues first. */
async function runLater(name) {
  await undefined;
  return run(name);
}

/** Scripts that every start needs; a smaller script is compiled as fast as its cache is found. */
const isKept = (name, source) => name.startsWith("for-") && source.length >= leastKept;

/** Threads of one kind share one file: compute threads run a part of the engine's code. */
function placeOf(file) {
  const folder = getCompileCacheDir?.();
  if (folder === undefined) return undefined;
  const { ino, size, mtimeMs, ctimeMs } = statSync(file);
  const kind = `${basename(file, ".cjs")}-${isMainThread ? "main" : "thread"}-`;
  return { folder, kind, name: `${kind}${[ino, size, mtimeMs, ctimeMs].join("-")}` };
}

function read({ folder, name }) {
  try {
    const bytes = readFileSync(join(folder, name));
    if (bytes.length <= headerBytes || bytes.readUInt32LE(0) !== crc32(bytes.subarray(4)))
      return undefined;
    return { runs: bytes.readUInt32LE(4), data: bytes.subarray(headerBytes) };
  } catch {
    return undefined; // nothing is kept yet
  }
}

/** A main thread keeps its compiled code when it ends; others are asked (src/platform/node.ts), since they may be ended by others. */
function keep() {
  for (const { script, place, known } of open.splice(0)) {
    const part = join(place.folder, `${place.name}.${process.pid}-${threadId}`);
    try {
      const compiled = script.createCachedData();
      // V8 forgets functions that have not run for long.
      const data = compiled.length > (known.data?.length ?? 0) ? compiled : known.data;
      const bytes = Buffer.alloc(headerBytes + data.length);
      bytes.set(data, headerBytes);
      bytes.writeUInt32LE(known.runs + 1, 4);
      bytes.writeUInt32LE(crc32(bytes.subarray(4)), 0);
      writeFileSync(part, bytes, { mode: 0o600, flag: "wx" });
      renameSync(part, join(place.folder, place.name));
      removeOld(place);
    } catch {
      rmSync(part, { force: true }); // a full or read-only disk: the next start compiles again
    }
  }
}

function removeOld({ folder, kind }) {
  const names = readdirSync(folder).filter((name) => name.startsWith(kind));
  const newestFirst = names
    .map((name) => ({ name, time: statSync(join(folder, name)).mtimeMs }))
    .sort((a, b) => b.time - a.time);
  for (const { name } of newestFirst.slice(mostFiles)) rmSync(join(folder, name), { force: true });
}

if (isMainThread) process.once("exit", keep);
else globalThis[Symbol.for("lantern.keepCode")] = keep;
