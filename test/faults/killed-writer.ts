// A process of dead-parts.test.ts: quantizes a model, and is killed or waits in the middle of writing the file.

import { quantize } from "../../src/index.ts";

const [input, output, how] = process.argv.slice(2);
await quantize(input!, output!, "q8_0", {
  onProgress: ({ loadedBytes, totalBytes }) => {
    if (loadedBytes < totalBytes / 2) return;
    if (how === "killed") process.kill(process.pid, "SIGKILL");
    console.log("waits");
    const forever = new Int32Array(new SharedArrayBuffer(4));
    Atomics.wait(forever, 0, 0); // until it is killed
  },
});
