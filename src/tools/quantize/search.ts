// The quantizers' searches in WebAssembly: the same bits as src/dtypes/block-search.ts, several times as fast. It
// transposes four groups at a time into the kernels' memory (search-kernels.ts) and reads the results back. Groups
// that do not fill four lanes, and groups that a plain search leaves early, are searched plainly.

import { type BlockSearch, plainSearch, searchedElems } from "../../dtypes/block-search.ts";
import type { LadderSearch } from "../../dtypes/ladder-search.ts";
import { nearestNonlinear, nonlinearValues } from "../../dtypes/nonlinear-codebook.ts";
import { type AffineLadder, type BlockFits, zeroBlock } from "../../dtypes/scale-search.ts";
import { assembleModule } from "../../kernels/asm/wasm.ts";
import type { Kernel } from "../../kernels/ir/kernel.ts";
import { lowerToWasm } from "../../kernels/lower/wasm.ts";
import { vectorLadderSearch } from "./ladder.ts";
import {
  affineKernel,
  FOUND,
  greedyKernel,
  nonlinearKernel,
  symmetricKernel,
  symmetricLadder,
} from "./search-kernels.ts";

type SearchKernel = (
  x: number,
  weights: number,
  out: number,
  sets: number,
  scratch: number,
) => void;

/** Groups computed at once: lanes of a vector. */
const lanes = 4;
const smallestGroup = 16;

/** Layout of the kernels' memory, in bytes. */
const layout = {
  x: 0,
  weights: 4 * searchedElems,
  out: 8 * searchedElems,
  scratch: 8 * searchedElems + (searchedElems / smallestGroup / lanes) * FOUND.fields * 16,
};
const scratchBytes = 32 * 16;
const pageBytes = 65536;

class VectorSearch implements BlockSearch {
  readonly ladder: LadderSearch = vectorLadderSearch();
  readonly #memory: WebAssembly.Memory;
  readonly #floats: Float32Array;
  /** Made at first use: a file needs two or three of them. */
  readonly #kernels = new Map<string, SearchKernel>();
  readonly #ladders = new Map<AffineLadder, number>();

  constructor() {
    const pages = Math.ceil((layout.scratch + scratchBytes) / pageBytes);
    this.#memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
    this.#floats = new Float32Array(this.#memory.buffer);
  }

  affine(
    x: Float32Array,
    at: number,
    count: number,
    groups: number,
    weights: Float32Array,
    ladder: AffineLadder,
    fits: BlockFits,
  ): void {
    const whole = groups - (groups % lanes);
    const number = this.#ladders.get(ladder) ?? this.#ladders.size;
    this.#ladders.set(ladder, number);
    const name = `search.affine.${count}.${number}`;
    const kernel = this.#kernel(name, () => affineKernel(name, count, ladder));
    this.#transpose(layout.x, x, at, count, whole);
    this.#transpose(layout.weights, weights, 0, count, whole);
    this.#run(kernel, whole);
    const { scales, mins, inverses, bases } = fits;
    this.#read(FOUND.scale, scales, whole);
    this.#read(FOUND.min, mins, whole);
    this.#read(FOUND.inverse, inverses, whole);
    this.#read(FOUND.base, bases, whole);
    // All values are equal (or NaN): the plain search does not climb the ladder.
    this.#plainly(
      groups,
      (reach) => !(reach > 0),
      (g) => {
        const part = partOf(fits, g);
        plainSearch.affine(x, at + g * count, count, 1, weights.subarray(g * count), ladder, part);
      },
    );
  }

  symmetric(
    x: Float32Array,
    at: number,
    count: number,
    groups: number,
    half: number,
    weights: Float32Array | undefined,
    fits: BlockFits,
  ): void {
    const whole = groups - (groups % lanes);
    const name = `search.symmetric.${count}.${half}${weights ? ".weighted" : ""}`;
    const kernel = this.#kernel(name, () => symmetricKernel(name, count, half, !!weights));
    this.#transpose(layout.x, x, at, count, whole);
    if (weights) this.#transpose(layout.weights, weights, 0, count, whole);
    this.#floats.set(symmetricLadder(half), layout.scratch / 4);
    this.#run(kernel, whole);
    this.#read(FOUND.scale, fits.scales, whole);
    this.#read(FOUND.inverse, fits.inverses, whole);
    this.#plainly(groups, isZero, (g) => {
      const part = partOf(fits, g);
      const own = weights?.subarray(g * count);
      plainSearch.symmetric(x, at + g * count, count, 1, half, own, part);
    });
  }

  greedy(
    x: Float32Array,
    at: number,
    count: number,
    groups: number,
    half: number,
    fits: BlockFits,
  ): void {
    const whole = groups - (groups % lanes);
    const name = `search.greedy.${count}.${half}`;
    const kernel = this.#kernel(name, () => greedyKernel(name, count, half));
    this.#transpose(layout.x, x, at, count, whole);
    this.#run(kernel, whole);
    this.#read(FOUND.scale, fits.scales, whole);
    this.#plainly(groups, isZero, (g) =>
      plainSearch.greedy(x, at + g * count, count, 1, half, partOf(fits, g)),
    );
  }

  nonlinear(
    x: Float32Array,
    at: number,
    groups: number,
    weights: Float32Array,
    fits: BlockFits,
  ): void {
    const whole = groups - (groups % lanes);
    const name = "search.nonlinear";
    const kernel = this.#kernel(name, () =>
      nonlinearKernel(name, { values: nonlinearValues, thresholds: thresholds() }),
    );
    this.#transpose(layout.x, x, at, 32, whole);
    this.#transpose(layout.weights, weights, 0, 32, whole);
    this.#run(kernel, whole);
    this.#read(FOUND.scale, fits.scales, whole);
    this.#plainly(groups, isZero, (g) =>
      plainSearch.nonlinear(x, at + 32 * g, 1, weights.subarray(32 * g), partOf(fits, g)),
    );
  }

  #kernel(name: string, describe: () => Kernel): SearchKernel {
    const known = this.#kernels.get(name);
    if (known) return known;
    // Not relaxed: a multiplication and an addition must not be fused into one rounding.
    const lowered = lowerToWasm(describe(), { relaxed: false, memory64: false });
    const pages = this.#memory.buffer.byteLength / pageBytes;
    const bytes = assembleModule([lowered], {
      initial: pages,
      maximum: pages,
      shared: false,
      memory64: false,
    });
    const module = new WebAssembly.Module(bytes);
    const { exports } = new WebAssembly.Instance(module, { env: { memory: this.#memory } });
    const kernel = exports[name] as SearchKernel;
    this.#kernels.set(name, kernel);
    return kernel;
  }

  #run(kernel: SearchKernel, groups: number): void {
    kernel(layout.x, layout.weights, layout.out, groups / lanes, layout.scratch);
  }

  /** [groups, count] -> [groups / 4, count, 4]. */
  #transpose(to: number, x: Float32Array, at: number, count: number, groups: number): void {
    const floats = this.#floats;
    let place = to / 4;
    for (let g = 0; g < groups; g += lanes) {
      const first = at + g * count;
      for (let i = first; i < first + count; i++) {
        floats[place] = x[i]!;
        floats[place + 1] = x[i + count]!;
        floats[place + 2] = x[i + 2 * count]!;
        floats[place + 3] = x[i + 3 * count]!;
        place += lanes;
      }
    }
  }

  /** Reads one field of the results of all groups. */
  #read(field: number, into: Float32Array, groups: number): void {
    for (let g = 0; g < groups; g++) into[g] = this.#found(field, g);
  }

  #found(field: number, group: number): number {
    const set = Math.floor(group / lanes);
    return this.#floats[layout.out / 4 + lanes * (set * FOUND.fields + field) + (group % lanes)]!;
  }

  /** Searches the blocks again that kernels do not handle. */
  #plainly(
    groups: number,
    isLeftOut: (reach: number) => boolean,
    search: (g: number) => void,
  ): void {
    const whole = groups - (groups % lanes);
    for (let g = 0; g < groups; g++) {
      if (g >= whole || isLeftOut(this.#found(FOUND.reach, g))) search(g);
    }
  }
}

/** All values are (almost) zero, or NaN. */
function isZero(reach: number): boolean {
  return !(reach >= zeroBlock);
}

function partOf({ scales, mins, inverses, bases }: BlockFits, group: number): BlockFits {
  return {
    scales: scales.subarray(group),
    mins: mins.subarray(group),
    inverses: inverses.subarray(group),
    bases: bases.subarray(group),
  };
}

/**
 * For each quant but the first, the smallest float that nearestNonlinear() maps to it: found by bisection on the bits.
 */
function thresholds(): Float32Array {
  const found = new Float32Array(nonlinearValues.length);
  const value = new Float32Array(1);
  const bits = new Int32Array(value.buffer);
  /** Maps floats to integers in the same order. */
  const ordered = (x: number): number => {
    value[0] = x;
    return bits[0]! < 0 ? -(bits[0]! & 0x7fffffff) : bits[0]!;
  };
  const floatOf = (order: number): number => {
    bits[0] = order < 0 ? -order | (1 << 31) : order;
    return value[0]!;
  };
  for (let quant = 1; quant < nonlinearValues.length; quant++) {
    let below = ordered(nonlinearValues[quant - 1]!);
    let above = ordered(nonlinearValues[quant]!);
    while (above - below > 1) {
      const middle = Math.floor((below + above) / 2);
      if (nearestNonlinear(floatOf(middle)) >= quant) above = middle;
      else below = middle;
    }
    found[quant] = floatOf(above);
  }
  return found;
}

export function vectorSearch(): BlockSearch {
  return new VectorSearch();
}
