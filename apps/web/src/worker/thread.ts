// The thread of a tab that computes for a cluster: the connection to NATS, the worker's side of it (apps/cluster/worker.ts), and the model, whose
// engine has threads of its own. Not in the page: browsers slow down the timers of a hidden page, and a worker whose heartbeats come once a
// minute counts as gone. It takes no lines of batches: a gateway does, and calls it for them as for a client.

import { messageOf } from "../../../../src/base/errors.ts";
import { open } from "../../../../src/index.ts";
import { connectSocket } from "../../../cluster/connect-socket.ts";
import { ClusterWorker } from "../../../cluster/worker.ts";
import type { TabChoice, TabState, ToThread } from "./messages.ts";

declare const LANTERN_VERSION: string;

const say = (state: TabState): void => postMessage(state);
const tellMs = 500;
const graceMs = 5000;

let stop: AbortController | undefined;

addEventListener("message", ({ data }: MessageEvent<ToThread>) => {
  if (data) void run(data);
  else stop?.abort();
});

async function run(choice: TabChoice): Promise<void> {
  stop = new AbortController();
  try {
    await serve(choice, stop.signal);
    say({ is: "idle" });
  } catch (error) {
    say(stop.signal.aborted ? { is: "idle" } : { is: "failed", why: messageOf(error) });
  }
}

async function serve(choice: TabChoice, signal: AbortSignal): Promise<void> {
  say({ is: "connecting" });
  const { creds, user, password, group, parallel } = choice;
  const servers = choice.cluster.split(",").map((one) => one.trim());
  const who = creds === undefined && user !== "" ? { user, password } : { creds };
  const connection = await connectSocket({ servers, name: "lantern tab", ...who });
  await using _connection = { [Symbol.asyncDispose]: () => connection.close() };
  say({ is: "loading", share: 0 });
  await using model = await open(choice.model, {
    ...{ parallel, restart: true, signal },
    onProgress: ({ loadedBytes, totalBytes }) =>
      say({ is: "loading", share: totalBytes > 0 ? loadedBytes / totalBytes : 0 }),
  });
  const worker = new ClusterWorker({
    ...{ connection, model, group, modelId: choice.name, capacity: parallel },
    version: LANTERN_VERSION,
  });
  try {
    await worker.ready();
    const { threads } = model.info.backend;
    const tell = (): void => {
      const { id, running, answered, tokensPerSecond } = worker;
      say({ is: "serving", worker: id, threads, running, answered, tokensPerSecond });
    };
    tell();
    using _timer = interval(tell, tellMs);
    const { promise: stopped, resolve } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => resolve(), { once: true });
    const problem = await Promise.race([stopped, connection.closed()]);
    if (problem instanceof Error) throw problem;
    if (!signal.aborted) throw new Error("NATS has closed the connection");
  } finally {
    if (signal.aborted) say({ is: "stopping" });
    await worker.stop(signal.aborted ? graceMs : 0);
  }
}

function interval(work: () => void, ms: number): Disposable {
  const timer = setInterval(work, ms);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
