// In each process of the quick tests: an engine's threads are started from a bundle of the same sources (test/tiers/bundle.ts), as those of
// the `lantern` command are; a thread loads it five times as fast. test/platform/bundled-threads.test.ts holds both against each other.

import { existsSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { basename, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import workerThreads, { Worker, type WorkerOptions } from "node:worker_threads";

/** Names the folder of the bundled threads; without it, threads run the sources. */
export const bundleVariable = "LANTERN_TEST_THREADS";

const threads = new URL("../../src/threads/", import.meta.url).href;

class BundledWorker extends Worker {
  constructor(file: string | URL, options?: WorkerOptions) {
    super(bundled(file), options);
  }
}

function bundled(file: string | URL): string | URL {
  const folder = process.env[bundleVariable];
  if (!folder || !(file instanceof URL) || !file.href.startsWith(threads)) return file;
  const path = join(folder, `${basename(fileURLToPath(file), ".ts")}.mjs`);
  return existsSync(path) ? pathToFileURL(path) : file;
}

// Files that share a process share its Worker.
if (workerThreads.Worker.name !== BundledWorker.name) {
  workerThreads.Worker = BundledWorker;
  syncBuiltinESMExports();
}
