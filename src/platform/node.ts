// The platform in Node.js: files, HTTP, worker threads.

import { readdirSync, readFileSync, readSync } from "node:fs";
import { stat } from "node:fs/promises";
import { availableParallelism, cpus, totalmem } from "node:os";
import { fileURLToPath } from "node:url";
import { getHeapStatistics } from "node:v8";
import { parentPort, Worker, type WorkerOptions } from "node:worker_threads";
import { messageOf, UsageError } from "../base/errors.ts";
import { stallMs, stallVariable } from "../base/stall.ts";
import { nodeCpuTimes } from "./node-cpu-times.ts";
import { canOpenDirect, openDirect } from "./node-direct-file.ts";
import { embeddedFiles } from "./node-embedded.ts";
import { nodeNoGpu } from "./node-no-gpu.ts";
import { nodeSmallFiles } from "./node-small-files.ts";
import type {
  EnginePort,
  EngineThread,
  ModelSource,
  Platform,
  SourceSpec,
  ThreadEntry,
} from "./platform.ts";
import { filesModelSource } from "./sources/blob.ts";
import { httpModelSource } from "./sources/http-range.ts";
import { nodeModelSource } from "./sources/node-file.ts";

/** The function that scripts/kept-code.js puts there, if this is a bundle. */
const keepCode: unique symbol = Symbol.for("lantern.keepCode");

export const nodePlatform: Platform = {
  name: "node",
  cores: availableParallelism(),
  cpu: () => `${cpus()[0]?.model.trim() || "unknown"} (${process.arch})`,
  totalMemory: totalmem,
  largestCache,
  env: (name) => process.env[name] || undefined,
  smallFiles: nodeSmallFiles,
  availableMemory,
  cpuTimes: nodeCpuTimes,
  openModelSource,
  isPath: async (name) => name !== "" && (await stat(name).catch(() => undefined)) !== undefined,
  readAt: (descriptor, target, position) =>
    readSync(descriptor, target, 0, target.byteLength, position),
  openDirect: canOpenDirect() ? openDirect : undefined,
  describeSource,
  downloads: async () => (await import("./node-download.ts")).nodeDownloadPlatform(),
  blockFolders: async (folder) => (await import("./node-block-files.ts")).nodeBlockFolders(folder),
  createOutputFile: async (...args) =>
    await (await import("./node-output-file.ts")).createNodeOutputFile(...args),
  gpu: async () => await (await import("./node-gpu.ts")).nodeGpu(),
  noGpu: nodeNoGpu,
  native: async () => (await import("./node-native.ts")).nodeNative(),
  cpuTopology: async () => (await import("./node-cpus.ts")).nodeCpuTopology(),
  startThread,
  enginePort,
  yieldThread: () => new Promise((resolve) => setImmediate(resolve)),
  now: () => performance.now(),
  keepCode: () => (globalThis as { [keepCode]?: () => void })[keepCode]?.(),
  heapBytes: () => getHeapStatistics().used_heap_size,
};

/** On macOS, free memory does not include memory that the system would release at once, so all memory counts there. */
function availableMemory(): number {
  const canTell = process.platform === "linux" || process.platform === "win32";
  return canTell ? process.availableMemory() : totalmem();
}

/** Linux reports the size of every cache of the first core: "32K", "2048K", "307200K". */
function largestCache(): number | undefined {
  const folder = "/sys/devices/system/cpu/cpu0/cache";
  try {
    const sizes = readdirSync(folder)
      .filter((name) => name.startsWith("index"))
      .map((name) => Number.parseInt(readFileSync(`${folder}/${name}/size`, "latin1"), 10));
    const largest = Math.max(...sizes) * 1024;
    return Number.isFinite(largest) ? largest : undefined;
  } catch {
    return undefined; // another system, or one that does not report it
  }
}

async function openModelSource(spec: SourceSpec): Promise<ModelSource> {
  if (spec.kind === "path") return nodeModelSource(spec.path);
  if (spec.kind === "url") {
    const ms = stallMs(process.env[stallVariable]);
    const advice = `Check the network, or set ${stallVariable} to more seconds`;
    return httpModelSource(spec.url, { stallMs: ms, advice });
  }
  return filesModelSource(spec.files);
}

function describeSource(model: string | URL | File | readonly File[]): SourceSpec {
  if (typeof model === "string") {
    return /^https?:\/\//i.test(model)
      ? { kind: "url", url: model }
      : { kind: "path", path: model };
  }
  if (model instanceof URL) {
    return model.protocol === "file:"
      ? { kind: "path", path: fileURLToPath(model) }
      : { kind: "url", url: model.href };
  }
  const files = model instanceof File ? [model] : [...model];
  if (files.length === 0) throw new UsageError("open(): got an empty list of files");
  return { kind: "files", files };
}

function startThread(entry: ThreadEntry): EngineThread {
  const code = embeddedFiles()?.text(`threads/${entry}.js`);
  const worker = new Worker(code ?? threadFile(entry), {
    name: `lantern-${entry}`,
    ...threadFlags(code !== undefined),
  });
  let ended = false;
  return {
    post: (message, transfer) => worker.postMessage(message, transfer ?? []),
    onMessage: (listener) => void worker.on("message", listener),
    onFailure: (listener) => {
      worker.on("error", (error) => {
        ended = true;
        listener(error instanceof Error ? error : new Error(messageOf(error)));
      });
      worker.on("exit", (code) => {
        if (!ended) listener(new Error(`it ended with exit code ${code}`));
      });
    },
    ref: () => worker.ref(),
    unref: () => worker.unref(),
    terminate: async () => {
      ended = true;
      await worker.terminate();
    },
  };
}

/**
 * Flags for a thread, only if Node must be told how to read its code. A thread inherits flags like
 * --max-old-space-size, but refuses them in an explicit list.
 */
function threadFlags(isText: boolean): WorkerOptions {
  // The single-file program contains one bundle for each kind of thread.
  if (isText) return { eval: true, execArgv: ["--input-type=module"] };
  // `node --input-type=module -e ...` applies to the caller's own code; a thread from a file refuses to start with
  // it.
  const isInherited = process.execArgv.some((flag) => flag.startsWith("--input-type"));
  return isInherited ? { execArgv: [] } : {};
}

/** The file of a thread's code: the source, or its bundle (scripts/bundle.js), which other bundles lie beside. */
function threadFile(entry: ThreadEntry): URL {
  const here = import.meta.url;
  if (here.endsWith(".ts")) return new URL(`../threads/${entry}.ts`, here);
  return new URL(`${here.endsWith(".mjs") ? "." : "../../start"}/${entry}.mjs`, here);
}

function enginePort(): EnginePort {
  const port = parentPort;
  if (!port) throw new Error("enginePort() outside an engine thread");
  return {
    post: (message, transfer) => port.postMessage(message, transfer ?? []),
    onMessage: (listener) => void port.on("message", listener),
    // Deno's port has no close(), but its thread has.
    close: () => ((port as Partial<typeof port>).close ? port.close() : globalThis.close()),
  };
}
