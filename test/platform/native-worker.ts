// A worker of native.test.ts: opens a shared object and calls one function on the memory that it was given.

import { parentPort, workerData } from "node:worker_threads";
import { nodeNative } from "../../src/platform/node-native.ts";

const { image, buffer, symbol } = workerData as {
  image: Uint8Array;
  buffer: SharedArrayBuffer;
  symbol: string;
};
const host = nodeNative();
if (typeof host === "string") throw new Error(host);
const library = host.load(image);
if (typeof library === "string") throw new Error(library);
const address = host.address(buffer);
library.function(symbol)(address);
parentPort!.postMessage(address);
