// Models whose threads hang on purpose: real ones, started through a file that looks at their messages first.

import { Worker } from "node:worker_threads";
import type { OpenRequest } from "../../src/engine/protocol.ts";
import type { Model, OpenOptions } from "../../src/index.ts";
import { openWith } from "../../src/open.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import type { EngineThread, ThreadEntry } from "../../src/platform/platform.ts";
import { threadOf } from "./thread-of.ts";

/** Whoever is asked something with these words in it does not answer any more. */
export const magicWords = "please hang";

/** Opens a model whose threads of these kinds hang when they are told to. */
export async function openHanging(
  path: string,
  kinds: readonly ThreadEntry[],
  options: Pick<OpenOptions, "restart" | "hangSeconds">,
  more: Partial<OpenRequest> = {},
  /** Asked at every start of such a thread, which is told nothing before this resolves. */
  mayStart: () => Promise<void> = () => Promise.resolve(),
): Promise<Model> {
  const request: OpenRequest = {
    spec: { kind: "path", path },
    contextSize: undefined,
    kvType: "f16",
    threads: 1,
    level: undefined,
    native: true,
    backend: undefined,
    gpuLayers: undefined,
    exact: false,
    chatTemplate: undefined,
    profile: false,
    tuned: false,
    parallel: 4,
    ...more,
  };
  const startThread = (entry: ThreadEntry): EngineThread =>
    kinds.includes(entry) ? hangingThread(entry, mayStart()) : nodePlatform.startThread(entry);
  return await openWith({ startThread }, request, options);
}

function hangingThread(entry: ThreadEntry, mayStart: Promise<void>): EngineThread {
  const file = new URL("./hanging-thread.ts", import.meta.url);
  const worker = new Worker(file, { workerData: { entry, words: magicWords } });
  const thread = threadOf(worker);
  const post: EngineThread["post"] = (message, transfer) =>
    void mayStart.then(() => thread.post(message, transfer));
  return { ...thread, post };
}
