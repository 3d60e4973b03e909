// A process of native-teardown.test.ts: workers that call machine code in hot loops, each ended in the middle of it. The
// optimizing compiler is at work on every one of these loops when its thread ends.

import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { sharedObject, symbolOf } from "../../src/kernels/asm/elf.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import { handWritten } from "./native-functions.ts";

const MOST_MS = 25;

if (isMainThread) {
  for (let rounds = Number(process.argv[2]); rounds > 0; rounds--) await endOne(rounds);
  console.log("all ended");
} else {
  callForever(workerData as number);
}

async function endOne(round: number): Promise<void> {
  const worker = new Worker(new URL(import.meta.url), { workerData: round });
  await new Promise<void>((resolve, reject) => {
    worker.once("error", reject);
    worker.once("exit", () => resolve());
    worker.once("message", () => setTimeout(() => void worker.terminate(), (round * 7) % MOST_MS));
  });
}

function callForever(round: number): void {
  const host = nodeNative();
  if (typeof host === "string") throw new Error(host);
  const library = host.load(sharedObject(handWritten(host.arch), host.arch));
  if (typeof library === "string") throw new Error(library);
  const call = library.function(symbolOf("nothing.at-all"));
  parentPort!.postMessage("ready");
  for (let made = 0; ; made++) {
    // Each source is another function for the compiler.
    const source = `for (let i = 0; i < 200; i++) call(i + ${round} + ${made} / 1024)`;
    const loop = new Function("call", source);
    for (let i = 0; i < 300; i++) loop(call);
  }
}
