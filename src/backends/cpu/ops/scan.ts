// The ops that scan a sequence with a matrix of state for each head: ssm_scan, delta_net, wkv. A chunk is a head; it goes over
// the tokens of every sequence of the batch in order, so results depend neither on threads nor on other sequences.
//
// Kernels compute one token of one head, or all tokens of a sequence, with the same bits (src/kernels/ops/scan/). The first token
// of a sequence reads the state in the slot that the sequence comes from and writes the one that it goes to; the others update
// that one in place.

import { NO_SLOT } from "../../../graph/batch.ts";
import { STEP_FLOATS } from "../../../kernels/ops/scan/decay-scan.ts";
import { type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import { SEGMENT } from "../program.ts";
import type { InstructionDef, LowerNode } from "./op.ts";

/** The addresses of the state of all heads, as lowerings of scans give them. */
interface ScanState {
  /** The address of the state in slot 0, and the bytes from a slot to the next. */
  readonly state: number;
  readonly slotBytes: number;
  /** For each thread: a head's state, for sequences whose state is not stored, then its kernels' operands for each token. */
  readonly scratch: number;
  readonly scratchBytes: number;
}

/** The kernels of src/kernels/ops/scan/. */
type HeadScanKernel = "scan_decay" | "scan_delta" | "scan_delta_keys" | "scan_wkv6" | "scan_wkv7";

export interface HeadScan extends ScanState {
  readonly op: "head_scan";
  readonly kernel: HeadScanKernel;
  readonly heads: number;
  /** Heads of keys and queries. */
  readonly keyHeads: number;
  /** The key head of head h is h % keyHeads. */
  readonly tiled: boolean;
  readonly keyDim: number;
  readonly vDim: number;
  /** Addresses of [tokens, keyHeads * keyDim], of [tokens, heads * vDim], and of the result. */
  readonly key: number;
  readonly query: number;
  readonly v: number;
  readonly out: number;
  /** Addresses of operands that only some kernels read: values of each token, and weights. */
  readonly values: readonly number[];
  readonly weights: readonly number[];
}

export interface ChannelScan extends ScanState {
  readonly op: "channel_scan";
  readonly channels: number;
  readonly states: number;
  readonly x: number;
  readonly dt: number;
  readonly b: number;
  readonly c: number;
  readonly a: number;
  readonly skip: number;
  readonly out: number;
}

/** Channels of a chunk. */
const CHANNELS = 64;

export const lowerSsmScan: LowerNode<"ssm_scan"> = (c, n): HeadScan | ChannelScan | string => {
  const heads = n.dt.cols;
  const { states } = n;
  const groups = n.b.cols / states;
  const vDim = n.x.cols / heads;
  if (n.a.shape.length === 2) {
    if (!n.a.dtype.asFloat32) return `${n.a.dtype.name} decays`;
    if (states % 4 !== 0) return `${states} states, kernels take multiples of 4`;
    if (groups !== 1) return `${groups} groups of channels`;
    return {
      op: "channel_scan",
      channels: heads,
      states,
      x: c.address(n.x),
      dt: c.address(n.dt),
      b: c.address(n.b),
      c: c.address(n.c),
      a: c.rowsOf(n.a).at,
      skip: c.vector(n.skip),
      out: c.address(n.out),
      ...c.recurrent(n.state),
      ...c.scratch(CHANNELS * states * 4),
    };
  }
  return ifWholeHead(vDim, () => ({
    op: "head_scan",
    kernel: "scan_decay",
    heads,
    keyHeads: groups,
    tiled: false,
    keyDim: states,
    vDim,
    key: c.address(n.b),
    query: c.address(n.c),
    v: c.address(n.x),
    out: c.address(n.out),
    values: [c.address(n.dt)],
    weights: [c.vector(n.a), c.vector(n.skip)],
    ...c.recurrent(n.state),
    ...c.scratch((states * vDim + c.rows * STEP_FLOATS) * 4),
  }));
};

export const lowerDeltaNet: LowerNode<"delta_net"> = (c, n) => {
  const heads = n.beta.cols;
  const [keyDim, vDim] = [n.k.cols / n.keyHeads, n.v.cols / heads];
  if (keyDim % 4 !== 0) return `keys of ${keyDim} values, kernels take multiples of 4`;
  return ifWholeHead(vDim, () => ({
    op: "head_scan",
    kernel: n.dt.cols === heads ? "scan_delta" : "scan_delta_keys",
    heads,
    keyHeads: n.keyHeads,
    tiled: n.tiled,
    keyDim,
    vDim,
    key: c.address(n.k),
    query: c.address(n.q),
    v: c.address(n.v),
    out: c.address(n.out),
    values: [c.address(n.dt), c.address(n.beta)],
    weights: [c.vector(n.a)],
    ...c.recurrent(n.state),
    ...c.scratch((keyDim * vDim + keyDim) * 4),
  }));
};

export const lowerWkv: LowerNode<"wkv"> = (c, n) => {
  const size = n.v.cols / n.heads;
  return ifWholeHead(size, () => ({
    op: "head_scan",
    kernel: n.bonus ? "scan_wkv6" : "scan_wkv7",
    heads: n.heads,
    keyHeads: n.heads,
    tiled: false,
    keyDim: size,
    vDim: size,
    key: c.address(n.k),
    query: c.address(n.r),
    v: c.address(n.v),
    out: c.address(n.out),
    values: [n.w, ...(n.a && n.b ? [n.a, n.b] : [])].map((value) => c.address(value)),
    weights: n.bonus ? [c.vector(n.bonus)] : [],
    ...c.recurrent(n.state),
    ...c.scratch(size * size * 4),
  }));
};

function ifWholeHead(vDim: number, make: () => HeadScan): HeadScan | string {
  return vDim % 4 === 0 ? make() : `heads of ${vDim} values, kernels take multiples of 4`;
}

/** Computes rows `row` to `row + count` of a head, tokens of one sequence: the state at `from` is before them, at `to` after. */
type RunRows = (from: number, to: number, row: number, count: number, head: number) => void;

/** The same for one row. */
type RunRow = (from: number, to: number, row: number, head: number) => void;

function rowAfterRow(run: RunRow): RunRows {
  return (from, to, row, count, head) => {
    run(from, to, row, head);
    for (let next = row + 1; next < row + count; next++) run(to, to, next, head);
  };
}

/** The address of this thread's scratch memory after a head's state. */
function besideState(i: HeadScan, { thread }: ExecutorContext): number {
  return i.scratch + thread * i.scratchBytes + i.keyDim * i.vDim * 4;
}

/** The calls of each kernel. */
const makeRuns: Readonly<Record<HeadScanKernel, (i: HeadScan, c: ExecutorContext) => RunRows>> = {
  scan_decay: (i, c) => {
    const { scan_decay: one, scan_decay_tokens: many } = c.kernels;
    const { f32 } = c.views;
    const [dt, a, skip] = [i.values[0]! / 4, i.weights[0]! / 4, i.weights[1]! / 4];
    const { keyDim, vDim } = i;
    const [valueBytes, keyBytes] = [i.heads * vDim * 4, i.keyHeads * keyDim * 4];
    const steps = besideState(i, c);
    return (from, to, row, count, head) => {
      const [v, key] = [valueAt(i, row, head), keyAt(i, row, head)];
      const [x, out, keys, queries] = [i.v + v, i.out + v, i.key + key, i.query + key];
      if (count === 1) {
        const step = f32[dt + row * i.heads + head]!;
        const decay = Math.exp(step * f32[a + head]!);
        one!(from, to, x, out, keys, queries, keyDim, vDim, decay, step, f32[skip + head]!);
        return;
      }
      for (let n = 0; n < count; n++) {
        const at = steps / 4 + n * STEP_FLOATS;
        const step = f32[dt + (row + n) * i.heads + head]!;
        f32[at] = Math.exp(step * f32[a + head]!);
        f32[at + 1] = step;
        f32[at + 2] = f32[skip + head]!;
      }
      many!(from, to, x, out, keys, queries, keyDim, vDim, steps, count, valueBytes, keyBytes);
    };
  },
  scan_delta: (i, c) => {
    const kernel = c.kernels.scan_delta!;
    const { f32 } = c.views;
    const [dt, beta, a] = [i.values[0]! / 4, i.values[1]! / 4, i.weights[0]! / 4];
    return rowAfterRow((from, to, row, head) => {
      const own = row * i.heads + head;
      const decay = Math.exp(f32[dt + own]! * f32[a + head]!);
      const [v, key] = [valueAt(i, row, head), keyAt(i, row, head)];
      const [keys, queries] = [i.key + key, i.query + key];
      kernel(
        from,
        to,
        i.v + v,
        i.out + v,
        keys,
        queries,
        i.keyDim,
        i.vDim,
        decay,
        f32[beta + own]!,
      );
    });
  },
  scan_delta_keys: (i, c) => {
    const { scan_delta_keys: kernel, scale, exp } = c.kernels;
    const { f32 } = c.views;
    const [beta, a] = [i.values[1]! / 4, i.weights[0]! / 4];
    const decays = besideState(i, c);
    return rowAfterRow((from, to, row, head) => {
      const own = row * i.heads + head;
      scale!(i.values[0]! + own * i.keyDim * 4, decays, i.keyDim, f32[a + head]!);
      exp!(decays, decays, i.keyDim);
      const [v, key] = [valueAt(i, row, head), keyAt(i, row, head)];
      const [keys, queries] = [i.key + key, i.query + key];
      kernel!(
        from,
        to,
        i.v + v,
        i.out + v,
        keys,
        queries,
        i.keyDim,
        i.vDim,
        decays,
        f32[beta + own]!,
      );
    });
  },
  scan_wkv6: (i, c) => {
    const kernel = c.kernels.scan_wkv6!;
    return rowAfterRow((from, to, row, head) => {
      const at = valueAt(i, row, head);
      const bonus = i.weights[0]! + head * i.keyDim * 4;
      const [keys, queries, decays] = [i.key + at, i.query + at, i.values[0]! + at];
      kernel(from, to, i.v + at, i.out + at, keys, queries, i.keyDim, i.vDim, decays, bonus);
    });
  },
  scan_wkv7: (i, c) => {
    const kernel = c.kernels.scan_wkv7!;
    return rowAfterRow((from, to, row, head) => {
      const at = valueAt(i, row, head);
      const [keys, queries] = [i.key + at, i.query + at];
      const [decays, a, b] = [i.values[0]! + at, i.values[1]! + at, i.values[2]! + at];
      kernel(from, to, i.v + at, i.out + at, keys, queries, i.keyDim, i.vDim, decays, a, b);
    });
  },
};

function valueAt({ heads, vDim }: HeadScan, row: number, head: number): number {
  return (row * heads + head) * vDim * 4;
}

function keyAt(i: HeadScan, row: number, head: number): number {
  const { heads, keyHeads, tiled, keyDim } = i;
  const own = tiled ? head % keyHeads : Math.floor((head * keyHeads) / heads);
  return (row * keyHeads + own) * keyDim * 4;
}

/** Kernels that are called beside it. */
const furtherKernels: Partial<Record<HeadScanKernel, readonly string[]>> = {
  scan_decay: ["scan_decay_tokens"],
  scan_delta_keys: ["scale", "exp"],
};

export const headScan: InstructionDef<HeadScan> = {
  access: "barrier",
  kernels: ({ kernel }) => [kernel, ...(furtherKernels[kernel] ?? [])],
  code: ({ kernel, vDim, keyDim }) => (kernel === "scan_delta_keys" ? [vDim, keyDim] : [vDim]),

  execute(i, c) {
    const bytes = i.keyDim * i.vDim * 4;
    return scanned(i, c, { bytes, total: i.heads * bytes }, makeRuns[i.kernel](i, c));
  },
};

export const channelScan: InstructionDef<ChannelScan> = {
  access: "barrier",
  kernels: () => ["scan_channels"],
  code: ({ states }) => [states],

  execute(i, c) {
    const kernel = c.kernels.scan_channels!;
    const { channels, states } = i;
    const size = { bytes: CHANNELS * states * 4, total: channels * states * 4 };
    const run = rowAfterRow((from, to, row, chunk) => {
      const first = chunk * CHANNELS;
      const at = (row * channels + first) * 4;
      const shared = row * states * 4;
      const [a, b, cc] = [i.a + first * states * 4, i.b + shared, i.c + shared];
      const count = Math.min(CHANNELS, channels - first);
      kernel(
        from,
        to,
        i.x + at,
        i.dt + at,
        i.out + at,
        a,
        b,
        cc,
        i.skip + first * 4,
        count,
        states,
      );
    });
    return scanned(i, c, size, run);
  },
};

/** A chunk for each `bytes` of the state, which has `total` bytes. */
function scanned(
  i: ScanState,
  c: ExecutorContext,
  { bytes, total }: { readonly bytes: number; readonly total: number },
  runRows: RunRows,
): Executor {
  const { i32, u8 } = c.views;
  const scratch = i.scratch + c.thread * i.scratchBytes;
  const segments = c.program.batch.segments / 4;
  const chunks = Math.ceil(total / bytes);
  return {
    chunks: () => (rowCount(c, "tokens") > 0 ? chunks : 0),
    run: (chunk) => {
      const rows = rowCount(c, "tokens");
      const state = i.state + chunk * bytes;
      for (let row = 0; row < rows; ) {
        const last = lastOf(i32, segments, row, rows);
        const from = i32[segments + row * SEGMENT.words + SEGMENT.from]!;
        const to = i32[segments + last * SEGMENT.words + SEGMENT.to]!;
        const target = to === NO_SLOT ? scratch : state + to * i.slotBytes;
        const isNew = from === NO_SLOT;
        if (isNew) u8.fill(0, target, target + Math.min(bytes, total - chunk * bytes));
        const source = isNew ? target : state + from * i.slotBytes;
        runRows(source, target, row, last + 1 - row, chunk);
        row = last + 1;
      }
    },
  };
}

/** The last row of the sequence that begins in row `first`. */
function lastOf(i32: Int32Array, segments: number, first: number, rows: number): number {
  let last = first;
  while (last + 1 < rows && i32[segments + (last + 1) * SEGMENT.words + SEGMENT.first] === first) {
    last++;
  }
  return last;
}
