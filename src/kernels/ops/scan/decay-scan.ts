// scan_decay, scan_decay_tokens: the scan of one head with one decay for all of its state, a matrix of [keys][values] floats:
//   S = decay S + key (gain v), out = query S + skip v
// scan_decay computes one token, scan_decay_tokens several of a sequence, one after the other, with the same bits. Both read the
// state before the first token at `from` and write the one after the last at `to`, which may be the same address.
//
// Vectors run along the values, so no sum crosses lanes, and every sum is in the order of the keys, for any vector width.
// `values` is a multiple of the lanes.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { forEachVector, load, manyRegisters, remainder, store, stream } from "../loops.ts";

type Vector = Reg<"f32v">;
type Pointer = Reg<"ptr">;

/** Floats of a token in the steps of scan_decay_tokens: decay, gain and skip. */
export const STEP_FLOATS = 3;

/** Keys that scan_decay goes over before the next piece of the values: a few KB of state that lie side by side. */
const BLOCK_KEYS = 16;

/**
 * One token takes as long as its state takes to be read and written, so this goes over the state in the order of addresses, as
 * far as registers allow: some keys of all pieces, then the next keys. Sums of other pieces wait in `out`.
 */
export function decayScan(width: number, registers: number = manyRegisters): Kernel {
  const k = new KernelBuilder("scan_decay", width);
  const from = k.variable(k.param("ptr", "from"));
  const to = k.variable(k.param("ptr", "to"));
  const v = k.param("ptr", "v");
  const out = k.param("ptr", "out");
  const key = k.variable(k.param("ptr", "key"));
  const query = k.variable(k.param("ptr", "query"));
  const keys = k.param("i32", "keys");
  const values = k.param("i32", "values");
  const decay = k.op("f32v.splat", [k.param("f32", "decay")]);
  const gain = k.op("f32v.splat", [k.param("f32", "gain")]);
  const skip = k.op("f32v.splat", [k.param("f32", "skip")]);
  const rowBytes = k.op("i32.mul", [values, k.i32(4)]);

  const cleared = stream(k, out);
  const zero = k.op("f32v.const", [], 0);
  forEachVector(k, values, 4, [cleared], (i) => store(k, cleared, i, zero));

  let keysLeft = keys;
  for (const block of [BLOCK_KEYS, 1]) {
    const blocks = k.op("i32.shr_u", [keysLeft], Math.log2(block));
    const blockKeys = k.i32(block);
    k.loop(blocks, () => {
      const piece = {
        from: k.variable(from),
        to: k.variable(to),
        v: k.variable(v),
        out: k.variable(out),
      };
      let left = values;
      for (const vectors of registers < manyRegisters ? [2, 1] : [4, 1]) {
        const count = vectors * k.lanes;
        const rounds = k.op("i32.shr_u", [left], Math.log2(count));
        k.loop(rounds, () => {
          const inputs = vectorsAt(k, piece.v, vectors).map((each) =>
            k.op("f32v.mul", [each, gain]),
          );
          const sums = vectorsAt(k, piece.out, vectors).map((each) => k.variable(each));
          const [row, result] = [k.variable(piece.from), k.variable(piece.to)];
          const [keyAt, queryAt] = [k.variable(key), k.variable(query)];
          k.loop(blockKeys, () => {
            const [keyHere, queryHere] = [keyAt, queryAt].map((at) =>
              k.op("f32v.load_splat", [at]),
            );
            vectorsAt(k, row, vectors).forEach((old, i) => {
              const added = k.op("f32v.mul", [inputs[i]!, keyHere!]);
              const kept = k.op("f32v.fma", [old, decay, added]);
              k.op("f32v.store", [result, kept], i * k.width);
              k.update(sums[i]!, "f32v.fma", [kept, queryHere!, sums[i]!]);
            });
            for (const at of [row, result]) k.update(at, "ptr.add", [at, rowBytes]);
            for (const at of [keyAt, queryAt]) k.advance(at, 4);
          });
          sums.forEach((sum, i) => {
            k.op("f32v.store", [piece.out, sum], i * k.width);
          });
          for (const at of [piece.from, piece.to, piece.v, piece.out]) k.advance(at, count * 4);
        });
        if (vectors > 1) left = remainder(k, left, rounds, count);
      }
      for (const at of [from, to]) k.set(at, k.op("ptr.add_product", [at, rowBytes, blockKeys]));
      for (const at of [key, query]) k.advance(at, block * 4);
    });
    if (block > 1) keysLeft = remainder(k, keysLeft, blocks, block);
  }
  const [value, result] = [stream(k, v), stream(k, out)];
  forEachVector(k, values, 4, [value, result], (i) => {
    store(k, result, i, k.op("f32v.fma", [load(k, value, i), skip, load(k, result, i)]));
  });
  return k.finish();
}

/** `steps` has three floats for each token. Tokens lie `valueBytes` apart in v and out, `keyBytes` apart in key and query. */
export function decayScanTokens(width: number, registers: number = manyRegisters): Kernel {
  const k = new KernelBuilder("scan_decay_tokens", width);
  const from = k.variable(k.param("ptr", "from"));
  const to = k.variable(k.param("ptr", "to"));
  const v = k.variable(k.param("ptr", "v"));
  const out = k.variable(k.param("ptr", "out"));
  const key = k.param("ptr", "key");
  const query = k.param("ptr", "query");
  const keys = k.param("i32", "keys");
  const values = k.param("i32", "values");
  const steps = k.param("ptr", "steps");
  const tokens = k.param("i32", "tokens");
  const valueBytes = k.param("i32", "valueBytes");
  const keyBytes = k.param("i32", "keyBytes");
  const rowBytes = k.op("i32.mul", [values, k.i32(4)]);
  let left = values;
  for (const vectors of [2, 1]) {
    const count = vectors * k.lanes;
    const rounds = k.op("i32.shr_u", [left], Math.log2(count));
    k.loop(rounds, () => {
      const source = k.variable(from);
      const token = {
        v: k.variable(v),
        out: k.variable(out),
        key: k.variable(key),
        query: k.variable(query),
        steps: k.variable(steps),
      };
      const scan = { ...token, source, target: to, keys, rowBytes, valueBytes, keyBytes };
      let tokensLeft = tokens;
      for (const atOnce of registers < manyRegisters ? [2, 1] : [4, 1]) {
        const passes = k.op("i32.shr_u", [tokensLeft], Math.log2(atOnce));
        k.loop(passes, () => {
          pass(k, scan, vectors, atOnce);
          k.set(source, to);
        });
        if (atOnce > 1) tokensLeft = remainder(k, tokensLeft, passes, atOnce);
      }
      for (const pointer of [from, to, v, out]) k.advance(pointer, count * 4);
    });
    if (vectors > 1) left = remainder(k, left, rounds, count);
  }
  return k.finish();
}

interface Pass {
  /** The state before these tokens, and after them. */
  readonly source: Pointer;
  readonly target: Pointer;
  readonly keys: Reg<"i32">;
  /** Bytes from a key of the state to the next. */
  readonly rowBytes: Reg<"i32">;
  /** Operands of the first token. */
  readonly v: Pointer;
  readonly out: Pointer;
  readonly key: Pointer;
  readonly query: Pointer;
  readonly steps: Pointer;
  /** Bytes from a token to the next. */
  readonly valueBytes: Reg<"i32">;
  readonly keyBytes: Reg<"i32">;
}

/** Computes `count` tokens in one pass over the keys: a vector of state is loaded and stored once for all of them. */
function pass(k: KernelBuilder, p: Pass, vectors: number, count: number): void {
  const tokens = Array.from({ length: count }, () => {
    const gain = k.op("f32v.load_splat", [p.steps], 4);
    const token = {
      key: k.variable(p.key),
      query: k.variable(p.query),
      decay: k.op("f32v.load_splat", [p.steps], 0),
      inputs: vectorsAt(k, p.v, vectors).map((each) => k.op("f32v.mul", [each, gain])),
      sums: zeros(k, vectors),
    };
    for (const at of [p.key, p.query]) k.update(at, "ptr.add", [at, p.keyBytes]);
    k.update(p.v, "ptr.add", [p.v, p.valueBytes]);
    k.advance(p.steps, STEP_FLOATS * 4);
    return token;
  });
  const [row, result] = [k.variable(p.source), k.variable(p.target)];
  k.loop(p.keys, () => {
    let state = vectorsAt(k, row, vectors);
    for (const { key, query, decay, inputs, sums } of tokens) {
      const [keyHere, queryHere] = [key, query].map((at) => k.op("f32v.load_splat", [at]));
      state = state.map((old, i) => {
        const added = k.op("f32v.mul", [inputs[i]!, keyHere!]);
        const kept = k.op("f32v.fma", [old, decay, added]);
        k.update(sums[i]!, "f32v.fma", [kept, queryHere!, sums[i]!]);
        return kept;
      });
      for (const pointer of [key, query]) k.advance(pointer, 4);
    }
    state.forEach((kept, i) => {
      k.op("f32v.store", [result, kept], i * k.width);
    });
    for (const pointer of [row, result]) k.update(pointer, "ptr.add", [pointer, p.rowBytes]);
  });
  // Pointers of v and steps are past these tokens now.
  const back = k.i32(-count);
  const v = k.variable(k.op("ptr.add_product", [p.v, p.valueBytes, back]));
  const skips = k.variable(k.plus(p.steps, -count * STEP_FLOATS * 4));
  for (const { sums } of tokens) {
    const skip = k.op("f32v.load_splat", [skips], 8);
    vectorsAt(k, v, vectors).forEach((value, i) => {
      k.op("f32v.store", [p.out, k.op("f32v.fma", [value, skip, sums[i]!])], i * k.width);
    });
    for (const at of [v, p.out]) k.update(at, "ptr.add", [at, p.valueBytes]);
    k.advance(skips, STEP_FLOATS * 4);
  }
}

function zeros(k: KernelBuilder, vectors: number): Vector[] {
  const zero = k.op("f32v.const", [], 0);
  return Array.from({ length: vectors }, () => k.variable(zero));
}

function vectorsAt(k: KernelBuilder, from: Pointer, vectors: number): Vector[] {
  return Array.from({ length: vectors }, (_, i) => k.op("f32v.load", [from], i * k.width));
}
