// The ladder search of the IQ quantizers in WebAssembly: lays a codebook's lists out as ladder-kernel.ts reads them, once for
// each codebook, and runs the kernel tuple by tuple.

import { type CodebookNeighbours, digitBits } from "../../dtypes/codebook-neighbours.ts";
import { type LadderSearch, ladderScales, subBlockTuples } from "../../dtypes/ladder-search.ts";
import { assembleModule } from "../../kernels/asm/wasm.ts";
import { lowerToWasm } from "../../kernels/lower/wasm.ts";
import { inputStride, kernelConstants, ladderKernel } from "./ladder-kernel.ts";

const pageBytes = 65536;

/** The layout of the kernel's memory, in bytes. */
const layout = {
  input: 0,
  ladder: 4 * inputStride,
  sums: 4 * inputStride + 8 * ladderScales,
  out: 4 * inputStride + 16 * ladderScales,
  constants: 4 * inputStride + 24 * ladderScales,
  scratch: 4 * inputStride + 24 * ladderScales + 64,
  points: 4 * inputStride + 24 * ladderScales + 128,
};

export function vectorLadderSearch(): LadderSearch {
  const searches = new Map<CodebookNeighbours, LadderSearch>();
  return (neighbours, ...rest) => {
    const known = searches.get(neighbours) ?? searchOf(neighbours);
    searches.set(neighbours, known);
    known(neighbours, ...rest);
  };
}

function searchOf(neighbours: CodebookNeighbours): LadderSearch {
  const { width, digitValues } = neighbours;
  const recordsAt = layout.points + 4 * neighbours.digits.length;
  const records = recordsOf(neighbours);
  const pages = Math.ceil((recordsAt + records.byteLength) / pageBytes);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  new Int32Array(memory.buffer, recordsAt, records.length).set(records);
  new Float32Array(memory.buffer, layout.points).set(
    Float32Array.from(neighbours.digits, (digit) => 2 * digit + 1),
  );
  const constants = kernelConstants(width, digitBits(neighbours));
  new Int32Array(memory.buffer, layout.constants, constants.length).set(constants);
  const kernel = compiled(`search.ladder.${width}`, width, digitValues, memory, pages);
  const floats = new Float32Array(memory.buffer);
  const integers = new Int32Array(memory.buffer);
  const { ladder: ladderAt, sums: sumsAt, out: outAt } = layout;
  return (_, { values, weights, roots, products }, size, inverses, scales, count, fits) => {
    floats.set(values, layout.input / 4);
    floats.set(roots, (layout.input + inputStride) / 4);
    floats.set(weights, (layout.input + 2 * inputStride) / 4);
    floats.set(products, (layout.input + 3 * inputStride) / 4);
    for (let step = 0; step < count; step++) {
      floats[ladderAt / 4 + 2 * step] = inverses[step]!;
      floats[ladderAt / 4 + 2 * step + 1] = scales[step]!;
    }
    floats.fill(0, sumsAt / 4, sumsAt / 4 + 2 * count);
    for (let tuple = 0; tuple < size / width; tuple++) {
      kernel(
        layout.input + 4 * width * tuple,
        ladderAt,
        sumsAt,
        outAt,
        recordsAt,
        layout.constants,
        layout.points,
        layout.scratch,
        count,
      );
      for (let step = 0; step < count; step++) {
        const at = outAt / 4 + 2 * step;
        const quads = integers[at + 1]!;
        fits.points[subBlockTuples * step + tuple] = integers[at]!;
        fits.isRounding[subBlockTuples * step + tuple] = quads === 0 ? 1 : 0;
      }
    }
    for (let step = 0; step < count; step++) {
      fits.sumsQX[step] = floats[sumsAt / 4 + 2 * step]!;
      fits.sumsQQ[step] = floats[sumsAt / 4 + 2 * step + 1]!;
    }
  };
}

type Call = (...parameters: number[]) => void;

function compiled(
  name: string,
  width: 4 | 8,
  digitValues: number,
  memory: WebAssembly.Memory,
  pages: number,
): Call {
  // Not relaxed: a multiplication and an addition must not become one rounding.
  const lowered = lowerToWasm(ladderKernel(name, width, digitValues), {
    relaxed: false,
    memory64: false,
  });
  const limits = { initial: pages, maximum: pages, shared: false, memory64: false };
  const module = new WebAssembly.Module(assembleModule([lowered], limits));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  return exports[name] as Call;
}

/** The kernel's records, after the table of each key's offset. */
function recordsOf({ width, digits, pointOf, lists }: CodebookNeighbours): Int32Array {
  const words: number[] = Array.from(pointOf, () => 0);
  const float = new Float32Array(1);
  const bits = new Int32Array(float.buffer);
  const value = (point: number, i: number): number => {
    float[0] = 2 * digits[width * point + i]! + 1;
    return bits[0]!;
  };
  pointOf.forEach((entry, key) => {
    words[key] = 4 * words.length;
    const list = entry < 0 ? -1 - entry : 0;
    const count = entry < 0 ? lists[list]! : 0;
    const quads = Math.ceil(count / 4);
    // A list's last quad is filled up with its first point: never better than itself.
    const points = Array.from(
      { length: 4 * quads },
      (_, i) => lists[list + 1 + (i < count ? i : 0)]!,
    );
    words.push(quads, Math.max(entry, -1), ...points);
    for (let quad = 0; quad < quads; quad++) {
      for (let i = 0; i < width; i++) {
        for (let lane = 0; lane < 4; lane++) words.push(value(points[4 * quad + lane]!, i));
      }
    }
  });
  return Int32Array.from(words);
}
