// Entry of the engine's thread. It is small, so that it runs at once: when it is asked to open a model, it starts compute
// threads, and loads the code of the engine (serve-engine.ts) while they start.

import type { ToEngine } from "../engine/protocol.ts";
import { currentPlatform } from "../platform/current.ts";
import { SpareThreads, sparesFor } from "./spare-threads.ts";

const platform = await currentPlatform();
const port = platform.enginePort();
const spares = new SpareThreads(platform);
/** A page that is not isolated has one thread. */
const sharesMemory = globalThis.crossOriginIsolated ?? typeof SharedArrayBuffer !== "undefined";
/** Messages until the engine listens. */
const early: ToEngine[] = [];
let receive = (message: ToEngine): void => {
  if (message.method === "open" && sharesMemory)
    spares.start(sparesFor(message.params, platform.cores));
  early.push(message);
};
port.onMessage((message) => receive(message as ToEngine));
const { serve } = await import("./serve-engine.ts");
const listen = (listener: (message: unknown) => void): void => {
  receive = listener;
  for (const message of early.splice(0)) listener(message);
};
serve({ ...port, onMessage: listen }, spares);
