// The platform in a browser: Files, HTTP, Web Workers.

import { pause } from "../base/backoff.ts";
import { SourceError, UsageError } from "../base/errors.ts";
import { takeEarlyMessages } from "./early-messages.ts";
import type {
  EnginePort,
  EngineThread,
  ModelSource,
  Platform,
  SmallFiles,
  SourceSpec,
  ThreadEntry,
} from "./platform.ts";
import { filesModelSource } from "./sources/blob.ts";
import { httpModelSource } from "./sources/http-range.ts";

export const browserPlatform: Platform = {
  name: "browser",
  cores: globalThis.navigator?.hardwareConcurrency ?? 1,
  cpu: () => globalThis.navigator?.userAgent ?? "unknown",
  totalMemory: () => undefined,
  largestCache: () => undefined,
  env: () => undefined,
  smallFiles,
  availableMemory: () => undefined,
  cpuTimes: () => undefined,
  isPath: async () => false,
  readAt: undefined,
  openDirect: undefined,
  openModelSource,
  describeSource,
  downloads: undefined,
  createOutputFile: undefined,
  blockFolders: async (folder) =>
    (await import("./browser-block-files.ts")).browserBlockFolders(folder),
  gpu: async () => {
    const { gpu } = globalThis.navigator;
    if (gpu) return { gpu, softwareOnly: false };
    return "this browser has no WebGPU, or not on this page (it must be served over https or from localhost)";
  },
  noGpu: () => (globalThis.navigator.gpu ? undefined : "this browser has no WebGPU"),
  native: async () => "a browser runs WebAssembly only",
  cpuTopology: async () => "a browser does not let a page choose CPUs",
  startThread,
  enginePort,
  yieldThread,
  now: () => performance.now(),
  heapBytes: () => undefined, // some browsers report it, but too coarsely to show a single batch
};

async function openModelSource(spec: SourceSpec): Promise<ModelSource> {
  if (spec.kind === "path") {
    throw new SourceError(`${spec.path}: a browser cannot open paths. Give a URL or a File`);
  }
  return spec.kind === "url" ? httpModelSource(spec.url) : filesModelSource(spec.files);
}

function describeSource(model: string | URL | File | readonly File[]): SourceSpec {
  if (typeof model === "string" || model instanceof URL) {
    return { kind: "url", url: new URL(model, globalThis.location?.href).href };
  }
  const files = model instanceof File ? [model] : [...model];
  if (files.length === 0) throw new UsageError("open(): got an empty list of files");
  return { kind: "files", files };
}

/**
 * Chromium leaks a worker that is terminated right after the worker that started it: both threads stay for good. A
 * worker that ends takes its own workers with it, so they get this time before they are terminated one by one. It is much
 * longer than a page waits before it terminates the engine's worker, also on a busy machine: with a second, both happened at once
 * in one of five runs there.
 */
const nestedGraceMs = 15_000;

/** The time that a worker waits when it ends one of its own: the time in which a page ends it. */
const nestedWaitMs = 1000;

/**
 * Written out each time, because bundlers look for exactly this text: `new Worker(new URL("...", import.meta.url), {...})`, without
 * computed parts. The script is a built file, so the sources do not run in a browser without a build.
 */
const startWorker: Readonly<Record<ThreadEntry, () => Worker>> = {
  engine: () =>
    new Worker(new URL("../threads/worker.js", import.meta.url), {
      type: "module",
      name: "lantern-engine",
    }),
  compute: () =>
    new Worker(new URL("../threads/worker.js", import.meta.url), {
      type: "module",
      name: "lantern-compute",
    }),
  measure: () =>
    new Worker(new URL("../threads/worker.js", import.meta.url), {
      type: "module",
      name: "lantern-measure",
    }),
  quantize: () =>
    new Worker(new URL("../threads/worker.js", import.meta.url), {
      type: "module",
      name: "lantern-quantize",
    }),
  text: () =>
    new Worker(new URL("../threads/worker.js", import.meta.url), {
      type: "module",
      name: "lantern-text",
    }),
};

function startThread(entry: ThreadEntry): EngineThread {
  const worker = startWorker[entry]();
  const terminate = async (): Promise<void> => {
    if (!("WorkerGlobalScope" in globalThis)) return worker.terminate();
    setTimeout(() => worker.terminate(), nestedGraceMs);
    await pause(nestedWaitMs);
  };
  return {
    post: (message, transfer) => worker.postMessage(message, transfer ?? []),
    onMessage: (listener) => worker.addEventListener("message", (event) => listener(event.data)),
    onFailure: (listener) =>
      worker.addEventListener("error", (event) => {
        void terminate(); // a browser keeps it alive after an uncaught error
        event.preventDefault(); // handled here: otherwise it is also reported as an error of the page that started the worker
        listener(new Error(failureOf(event)));
      }),
    // A page lives as long as its tab, so no thread needs to keep it alive.
    ref: () => {},
    unref: () => {},
    terminate,
  };
}

/** When a worker's script or one of its static imports cannot be loaded, the event has no message. */
function failureOf(event: ErrorEvent): string {
  return (
    event.message ??
    `its script or something it imports could not be loaded (Lantern itself was, from ${import.meta.url}): see the browser's console, and docs/library/browser.md for how to serve the package`
  );
}

/** Files in the origin private file system, which pages and workers of a secure context share. */
function smallFiles(): SmallFiles {
  return {
    place: (name) => `this site's private files: ${name}`,
    read: async (name) => {
      const root = await navigator.storage.getDirectory();
      const file = await root.getFileHandle(name).catch((error: DOMException) => {
        if (error.name === "NotFoundError") return undefined;
        throw error;
      });
      return await (await file?.getFile())?.text();
    },
    write: async (name, text) => {
      const root = await navigator.storage.getDirectory();
      const file = await root.getFileHandle(name, { create: true });
      const stream = await file.createWritable(); // takes effect when it is closed
      await stream.write(text);
      await stream.close();
    },
  };
}

function enginePort(): EnginePort {
  return {
    post: (message, transfer) => postMessage(message, { transfer: transfer ?? [] }),
    onMessage: (listener) => {
      addEventListener("message", (event) => listener(event.data));
      for (const message of takeEarlyMessages()) listener(message);
    },
    close: () => {}, // the thread that started this worker terminates it; both at once would be the race of nestedGraceMs
  };
}

// A message to oneself arrives after the queued ones, without the 4 ms that timers cost.
const channel = new MessageChannel();
let waiting: (() => void)[] = [];
channel.port1.onmessage = () => {
  const ready = waiting;
  waiting = [];
  for (const resume of ready) resume();
};

function yieldThread(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    channel.port2.postMessage(undefined);
  });
}
