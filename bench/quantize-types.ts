// What quantizing to each type costs: CPU seconds for 100 MB of F32 weights on one thread, without and with an importance matrix, and a
// hash of the bytes, which no change of speed may change. `node bench/quantize-types.ts [q4_0,iq3_s]`. CPU time, since machines are busy.

import { createHash } from "node:crypto";
import { bytesFor } from "../src/dtypes/dtype.ts";
import { allDTypes } from "../src/dtypes/table.ts";
import { fastQuantizer } from "../src/tools/quantize/fast.ts";
import { Random } from "../test/support/random.ts";
import { bench, timed } from "./harness.ts";

const count = 256 * 1024;
const warmUp = 256 * 64;
const random = new Random(1);
const weights = Float32Array.from({ length: count }, () => 0.02 * random.normal());
const importance = Float32Array.from({ length: 1024 }, () => Math.abs(random.normal()) + 0.1);
const quantize = fastQuantizer();

await bench("node bench/quantize-types.ts", "[TYPE,...]", {}, async (_, [types]) => {
  const only = types?.split(",");
  console.log("type       s/100 MB  bytes     with an imatrix");
  for (const dtype of allDTypes()) {
    const { name, blockElems } = dtype;
    if (!dtype.quantize || blockElems === 1 || (only && !only.includes(name))) continue;
    const cells: string[] = [];
    for (const matrix of [undefined, importance]) {
      const run = (elems: number): Uint8Array => {
        const bytes = new Uint8Array(bytesFor(dtype, elems));
        quantize(dtype, weights.subarray(0, elems), bytes, elems / blockElems, matrix);
        return bytes;
      };
      if (!matrix && dtype.needsImportance) {
        cells.push("-".padEnd(18));
        continue;
      }
      run(warmUp);
      const { result: bytes, cpuMs } = await timed(() => run(count));
      const rate = ((cpuMs * 100e3) / (4 * count)).toFixed(1).padStart(8);
      cells.push(`${rate}  ${createHash("sha1").update(bytes).digest("hex").slice(0, 8)}`);
    }
    console.log(`${name.padEnd(11)}${cells.join("  ")}`);
  }
});
