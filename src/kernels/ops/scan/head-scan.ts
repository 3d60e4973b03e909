// scan_delta, scan_delta_keys, scan_wkv6, scan_wkv7: one token of one head of a scan, whose state is a matrix of
// [keys][values] floats. Reads the state at `from` and writes it at `to`, which may be the same address.
//
// Vectors run along the values, so no sum crosses lanes, and every sum is in the order of the keys, for any vector width. A
// piece of the values goes through all keys before the next: its sums stay in registers. `values` is a multiple of the
// lanes.
//
// The delta rule and scan_wkv7 read the state twice. The first time it comes from memory, in the order of addresses as far as
// registers allow: some keys of all pieces, then the next keys; the sums of other pieces wait in `out`. The second time it
// comes from the cache.
//
//   scan_delta       S = decay S, then S += key (gain (v - key S)), out = query S
//   scan_delta_keys  the same with a decay for each key
//   scan_wkv6        out = query (S + bonus key v), then S = decay S + key v
//   scan_wkv7        S = decay S + key v + b (a S), then out = query S

import { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { type KernelMaker, lazily } from "../../ir/lazy-kernel.ts";
import { forEachVector, manyRegisters, remainder, store, stream } from "../loops.ts";

type Vector = Reg<"f32v">;
type Pointer = Reg<"ptr">;

/** Operands of a scan besides state, keys, queries and values. */
interface Operands {
  readonly key: Pointer;
  readonly query: Pointer;
  readonly decay: Pointer | Vector;
  /** scan_delta, scan_delta_keys. */
  readonly gain?: Vector;
  readonly bonus?: Pointer;
  readonly a?: Pointer;
  readonly b?: Pointer;
}

interface Shape {
  readonly from: Pointer;
  readonly to: Pointer;
  readonly v: Pointer;
  readonly out: Pointer;
  readonly keys: Reg<"i32">;
  /** Bytes from a key of the state to the next. */
  readonly rowBytes: Reg<"i32">;
}

/** Keys that the first pass goes over before the next piece of the values: a few KB of state that lie side by side. */
const BLOCK_KEYS = 16;

/** Sums of a first pass: S times a factor for each key (times its decay). */
interface Sums {
  readonly factors: Pointer;
  readonly decays: Pointer | undefined;
}

/** Computes a piece's vectors. */
type Piece = (k: KernelBuilder, shape: Shape, operands: Operands, vectors: number) => void;
type Params = (k: KernelBuilder) => Omit<Operands, "key" | "query">;

/** Each takes the bytes of a vector register and the number of registers. */
export const headScans: readonly KernelMaker[] = [
  headScan("scan_delta", deltaPiece, deltaSums, (k) => ({
    decay: splat(k, "decay"),
    gain: splat(k, "gain"),
  })),
  headScan("scan_delta_keys", deltaPiece, deltaSums, (k) => ({
    decay: k.param("ptr", "decay"),
    gain: splat(k, "gain"),
  })),
  headScan("scan_wkv6", bonusPiece, undefined, (k) => ({
    decay: k.param("ptr", "decay"),
    bonus: k.param("ptr", "bonus"),
  })),
  headScan("scan_wkv7", removalPiece, removalSums, (k) => ({
    decay: k.param("ptr", "decay"),
    a: k.param("ptr", "a"),
    b: k.param("ptr", "b"),
  })),
];

function headScan(
  name: string,
  piece: Piece,
  sums: ((operands: Operands) => Sums) | undefined,
  params: Params,
): KernelMaker {
  return lazily(name, (width, registers = manyRegisters) => {
    const k = new KernelBuilder(name, width);
    const from = k.variable(k.param("ptr", "from"));
    const to = k.variable(k.param("ptr", "to"));
    const v = k.variable(k.param("ptr", "v"));
    const out = k.variable(k.param("ptr", "out"));
    const key = k.param("ptr", "key");
    const query = k.param("ptr", "query");
    const keys = k.param("i32", "keys");
    const values = k.param("i32", "values");
    const operands = { key, query, ...params(k) };
    const rowBytes = k.op("i32.mul", [values, k.i32(4)]);
    const shape = { from, to, v, out, keys, rowBytes };
    const pieces = registers < manyRegisters ? [2, 1] : [4, 1];
    if (sums) sumInOrder(k, shape, sums(operands), values, pieces);
    let left = values;
    for (const vectors of pieces) {
      const count = vectors * k.lanes;
      const rounds = k.op("i32.shr_u", [left], Math.log2(count));
      k.loop(rounds, () => {
        piece(k, shape, operands, vectors);
        for (const pointer of [from, to, v, out]) k.advance(pointer, count * 4);
      });
      left = remainder(k, left, rounds, count);
    }
    return k.finish();
  });
}

function splat(k: KernelBuilder, name: string): Vector {
  return k.op("f32v.splat", [k.param("f32", name)]);
}

function deltaPiece(k: KernelBuilder, shape: Shape, operands: Operands, vectors: number): void {
  // The decay of a whole head is a factor of the sum.
  const isWhole = operands.decay.type === "f32v";
  const known = loadAll(k, shape.out, vectors);
  const deltas = loadAll(k, shape.v, vectors).map((v, i) => {
    const seen = isWhole ? k.op("f32v.mul", [known[i]!, operands.decay as Vector]) : known[i]!;
    return k.op("f32v.mul", [k.op("f32v.sub", [v, seen]), operands.gain!]);
  });
  const sums = zeros(k, vectors);
  walkKeys(k, shape, operands, vectors, ({ state, key, decay, query, write }) => {
    state.forEach((old, i) => {
      const decayed = k.op("f32v.mul", [old, decay]);
      const kept = k.op("f32v.fma", [deltas[i]!, key, decayed]);
      write(i, kept);
      k.update(sums[i]!, "f32v.fma", [kept, query, sums[i]!]);
    });
  });
  storeAll(k, shape.out, sums);
}

function bonusPiece(k: KernelBuilder, shape: Shape, operands: Operands, vectors: number): void {
  const v = loadAll(k, shape.v, vectors);
  const sums = zeros(k, vectors);
  const bonuses = k.variable(operands.bonus!);
  walkKeys(k, shape, operands, vectors, ({ state, key, decay, query, write }) => {
    const bonus = k.op("f32v.load_splat", [bonuses]);
    k.advance(bonuses, 4);
    state.forEach((old, i) => {
      const added = k.op("f32v.mul", [v[i]!, key]);
      write(i, k.op("f32v.fma", [old, decay, added]));
      const seen = k.op("f32v.fma", [added, bonus, old]);
      k.update(sums[i]!, "f32v.fma", [seen, query, sums[i]!]);
    });
  });
  storeAll(k, shape.out, sums);
}

function removalPiece(k: KernelBuilder, shape: Shape, operands: Operands, vectors: number): void {
  const removed = loadAll(k, shape.out, vectors);
  const v = loadAll(k, shape.v, vectors);
  const sums = zeros(k, vectors);
  const factors = k.variable(operands.b!);
  walkKeys(k, shape, operands, vectors, ({ state, key, decay, query, write }) => {
    const factor = k.op("f32v.load_splat", [factors]);
    k.advance(factors, 4);
    state.forEach((old, i) => {
      const added = k.op("f32v.fma", [removed[i]!, factor, k.op("f32v.mul", [v[i]!, key])]);
      const kept = k.op("f32v.fma", [old, decay, added]);
      write(i, kept);
      k.update(sums[i]!, "f32v.fma", [kept, query, sums[i]!]);
    });
  });
  storeAll(k, shape.out, sums);
}

function deltaSums({ key, decay }: Operands): Sums {
  return { factors: key, decays: decay.type === "ptr" ? decay : undefined };
}

function removalSums({ a }: Operands): Sums {
  return { factors: a!, decays: undefined };
}

/** The first pass: sums over all keys, for each of the values, into `out`. */
function sumInOrder(
  k: KernelBuilder,
  { from, out, keys, rowBytes }: Shape,
  { factors, decays }: Sums,
  values: Reg<"i32">,
  pieces: readonly number[],
): void {
  const cleared = stream(k, out);
  const zero = k.op("f32v.const", [], 0);
  forEachVector(k, values, 4, [cleared], (i) => store(k, cleared, i, zero));
  const block = { row: k.variable(from), factor: k.variable(factors) };
  const decay = decays && k.variable(decays);
  let keysLeft = keys;
  for (const count of [BLOCK_KEYS, 1]) {
    const blocks = k.op("i32.shr_u", [keysLeft], Math.log2(count));
    const blockKeys = k.i32(count);
    k.loop(blocks, () => {
      const piece = { row: k.variable(block.row), out: k.variable(out) };
      let left = values;
      for (const vectors of pieces) {
        const rounds = k.op("i32.shr_u", [left], Math.log2(vectors * k.lanes));
        k.loop(rounds, () => {
          const sums = loadAll(k, piece.out, vectors).map((sum) => k.variable(sum));
          const at = { row: k.variable(piece.row), factor: k.variable(block.factor) };
          const decayAt = decay && k.variable(decay);
          k.loop(blockKeys, () => {
            const own = k.op("f32v.load_splat", [at.factor]);
            const times = decayAt
              ? k.op("f32v.mul", [own, k.op("f32v.load_splat", [decayAt])])
              : own;
            loadAll(k, at.row, vectors).forEach((state, i) => {
              k.update(sums[i]!, "f32v.fma", [state, times, sums[i]!]);
            });
            k.update(at.row, "ptr.add", [at.row, rowBytes]);
            k.advance(at.factor, 4);
            if (decayAt) k.advance(decayAt, 4);
          });
          storeAll(k, piece.out, sums);
          for (const pointer of [piece.row, piece.out]) k.advance(pointer, vectors * k.width);
        });
        if (vectors > 1) left = remainder(k, left, rounds, vectors * k.lanes);
      }
      k.set(block.row, k.op("ptr.add_product", [block.row, rowBytes, blockKeys]));
      for (const pointer of decay ? [block.factor, decay] : [block.factor]) {
        k.advance(pointer, count * 4);
      }
    });
    if (count > 1) keysLeft = remainder(k, keysLeft, blocks, count);
  }
}

/** A key of the state, as a loop over all keys sees it. */
interface Row {
  /** The vectors of the piece. */
  readonly state: readonly Vector[];
  readonly key: Vector;
  readonly query: Vector;
  readonly decay: Vector;
  write(i: number, value: Vector): void;
}

function walkKeys(
  k: KernelBuilder,
  { from, to, keys, rowBytes }: Shape,
  { key, query, decay }: Operands,
  vectors: number,
  body: (row: Row) => void,
): void {
  const [source, target] = [k.variable(from), k.variable(to)];
  const [keyAt, queryAt] = [k.variable(key), k.variable(query)];
  const decayAt = decay.type === "ptr" ? k.variable(decay) : undefined;
  k.loop(keys, () => {
    body({
      state: loadAll(k, source, vectors),
      key: k.op("f32v.load_splat", [keyAt]),
      query: k.op("f32v.load_splat", [queryAt]),
      decay: decayAt ? k.op("f32v.load_splat", [decayAt]) : (decay as Vector),
      write: (i, value) => k.op("f32v.store", [target, value], i * k.width),
    });
    for (const pointer of [source, target]) k.update(pointer, "ptr.add", [pointer, rowBytes]);
    for (const pointer of [keyAt, queryAt]) k.advance(pointer, 4);
    if (decayAt) k.advance(decayAt, 4);
  });
}

function zeros(k: KernelBuilder, vectors: number): Vector[] {
  const zero = k.op("f32v.const", [], 0);
  return Array.from({ length: vectors }, () => k.variable(zero));
}

function loadAll(k: KernelBuilder, from: Pointer, vectors: number): Vector[] {
  return Array.from({ length: vectors }, (_, i) => k.op("f32v.load", [from], i * k.width));
}

function storeAll(k: KernelBuilder, to: Pointer, values: readonly Vector[]): void {
  for (const [i, value] of values.entries()) k.op("f32v.store", [to, value], i * k.width);
}
