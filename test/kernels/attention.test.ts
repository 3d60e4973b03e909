// The attention kernels over a paged cache, lowered to WebAssembly with and without relaxed SIMD and interpreted with
// wider vectors, against double precision over the values that the cache's own dtype reads back; block tables are scrambled, and blocks that the table
// does not name hold NaN, so that a wrong row shows. Also the kernels that write the cache.

import { describe, expect, it } from "vitest";
import type { DType } from "../../src/dtypes/dtype.ts";
import { f16 } from "../../src/dtypes/f16.ts";
import { kvTypes } from "../../src/dtypes/kv-types.ts";
import { q8_0 } from "../../src/dtypes/q8_0.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { attentionMix } from "../../src/kernels/ops/attention/attention-mix.ts";
import { attentionMany } from "../../src/kernels/ops/attention/attention-prefill.ts";
import { attentionScores } from "../../src/kernels/ops/attention/attention-scores.ts";
import { kvWidens } from "../../src/kernels/ops/attention/kv-widen.ts";
import { quantizeKvQ8_0, storeF16 } from "../../src/kernels/ops/attention/kv-write.ts";
import { Random } from "../support/random.ts";
import { skippedFor } from "../support/skips.ts";
import { type Arena, arenaFor, refusal, type Target, targets } from "./arena.ts";

const blockRows = 32;
const heads = 3;

interface Cache {
  bytes: Uint8Array;
  table: Int32Array;
  rowBytes: number;
  /** Where head 1 starts in a row. */
  headOffset: number;
  /** Row p of head 1 as floats. */
  row(p: number): Float32Array;
}

/** A cache of `positions` rows of 3 heads with random values, in blocks in scrambled order. */
function pagedCache(
  arena: Arena,
  random: Random,
  dtype: DType,
  headDim: number,
  positions: number,
): Cache {
  const cols = heads * headDim;
  const unitsPerRow = cols / dtype.blockElems;
  const rowBytes = unitsPerRow * dtype.blockBytes;
  const used = Math.ceil(positions / blockRows);
  const free = Array.from({ length: used + 3 }, (_, i) => i);
  const order = Array.from({ length: used }, () => free.splice(random.below(free.length), 1)[0]!);
  const bytes = arena.bytes((used + 3) * blockRows * rowBytes).fill(0xff); // NaN, as f32 and f16
  const floats = new Float32Array(positions * cols);
  for (let p = 0; p < positions; p++) {
    const at = (order[Math.floor(p / blockRows)]! * blockRows + (p % blockRows)) * rowBytes;
    const values = Float32Array.from({ length: cols }, () => random.normal());
    dtype.quantize!(values, 0, bytes, at, unitsPerRow);
    dtype.dequantize(bytes, at, floats, p * cols, unitsPerRow);
  }
  return {
    bytes,
    table: arena.i32(order),
    rowBytes,
    headOffset: rowBytes / heads,
    row: (p) => floats.subarray(p * cols + headDim, p * cols + 2 * headDim),
  };
}

/** Values within `tolerance` of the sum of the magnitudes that were added up. */
function expectSum(got: number, terms: readonly number[], tolerance: number): void {
  const want = terms.reduce((a, b) => a + b, 0);
  const size = terms.reduce((a, b) => a + Math.abs(b), 0);
  if (!(Math.abs(got - want) <= tolerance * size)) {
    expect.fail(`${got}, expected ${want} within ${tolerance * size}`);
  }
}

/** Vector registers, as kernels are told; undefined: enough for any tile. */
function registersOf({ run }: Target): number | undefined {
  return typeof run === "object" && run.isa !== "avx512" ? 16 : undefined;
}

const formats = kvTypes.map((name) => dtypeByName(name)!);
const headDims = [4, 20, 32, 48, 64, 80, 128];
/** Of types whose kernels differ only in how a block is read: one block, and several. */
const fewHeadDims = [32, 96];
const isAlike = ({ name }: DType) => !["f32", "f16", "q8_0"].includes(name);
const lengths = [1, 7, 31, 32, 33, 76];

function headDimsFor(dtype: DType, { run }: Target): readonly number[] {
  if (isAlike(dtype)) return run === "interpreted" ? [32] : fewHeadDims;
  return run === "interpreted" ? [32, 48, 64] : headDims;
}

describe.each(targets.map((target) => [target.name, target] as const))(
  "attention kernels, %s",
  (_, target) => {
    const shapes = formats.flatMap((dtype) =>
      headDimsFor(dtype, target)
        .filter((headDim) => headDim % Math.max(dtype.blockElems, target.width / 4) === 0)
        .flatMap((headDim) =>
          [1, 4].map((queries) => [dtype.name, headDim, queries, dtype] as const),
        ),
    );
    it("every kernel has code", () => {
      for (const build of [...attentionScores, ...attentionMix, ...attentionMany, ...kvWidens]) {
        expect(refusal((width) => build(width, registersOf(target)), target)).toBeUndefined();
      }
    });

    const named = new Map(
      [...attentionScores, ...attentionMix].map((build) => [build(target.width).name, build]),
    );

    /** attn_scores_f16, attn_scores4_f16, ... */
    function lowered(stem: string, queries: number, dtype: string): Arena {
      const build = named.get(`${stem}${queries > 1 ? queries : ""}_${dtype}`)!;
      return arenaFor((width) => build(width, registersOf(target)), target);
    }

    it.each(shapes)("scores %s, head of %i, %i at once: 5e-7", (name, headDim, queries, dtype) => {
      const random = new Random(headDim);
      const arena = lowered("attn_scores", queries, name);
      for (const n of lengths) {
        const cache = pagedCache(arena, random, dtype, headDim, n);
        const queryStride = headDim + 4;
        const written = Math.ceil(n / 4) * 4; // in fours
        const scoreStride = written + 1;
        const q = arena.f32(
          Float32Array.from({ length: queries * queryStride - 4 }, () => random.normal()),
        );
        const scores = arena.f32(queries * scoreStride - 1).fill(-5);
        arena.call(
          q.byteOffset,
          cache.bytes.byteOffset,
          cache.table.byteOffset,
          scores.byteOffset,
          Math.floor(n / blockRows),
          n % blockRows,
          cache.rowBytes,
          cache.headOffset,
          headDim,
          queryStride * 4,
          scoreStride * 4,
        );
        for (let j = 0; j < queries; j++) {
          for (let p = 0; p < n; p++) {
            const terms = Array.from(cache.row(p), (v, i) => v * q[j * queryStride + i]!);
            expectSum(scores[j * scoreStride + p]!, terms, 5e-7);
          }
          // What lies between the rows of scores stays.
          if (j > 0) expect(scores[j * scoreStride - 1]).toBe(-5);
        }
        arena.checkGuards();
      }
    });

    it.each(shapes)("mix %s, head of %i, %i at once: 1e-6", (name, headDim, queries, dtype) => {
      const random = new Random(headDim);
      const arena = lowered("attn_mix", queries, name);
      for (const n of lengths) {
        const cache = pagedCache(arena, random, dtype, headDim, n);
        const outStride = headDim + 4;
        const scoreStride = n + 3;
        const scores = arena.f32(
          Float32Array.from({ length: queries * scoreStride - 3 }, () => random.unit()),
        );
        const out = arena.f32(queries * outStride - 4).fill(-5);
        arena.call(
          scores.byteOffset,
          cache.bytes.byteOffset,
          cache.table.byteOffset,
          out.byteOffset,
          Math.floor(n / blockRows),
          n % blockRows,
          cache.rowBytes,
          cache.headOffset,
          headDim,
          1,
          scoreStride * 4,
          outStride * 4,
        );
        for (let j = 0; j < queries; j++) {
          for (let i = 0; i < headDim; i++) {
            const terms = Array.from(
              { length: n },
              (_, p) => cache.row(p)[i]! * scores[j * scoreStride + p]!,
            );
            expectSum(out[j * outStride + i]!, terms, 1e-6);
          }
          if (j > 0) expect(out[j * outStride - 1]).toBe(-5);
        }
        arena.checkGuards();
      }
    });

    const made = (name: string): Arena => {
      const build = [...attentionMany, ...kvWidens].find((one) => one(target.width).name === name)!;
      return arenaFor((width) => build(width, registersOf(target)), target);
    };

    it.each(shapes.filter(([, , queries]) => queries === 1))(
      "kv_widen %s, head of %i: what the type reads back",
      (name, headDim, _, dtype) => {
        const random = new Random(headDim);
        const arena = made(`kv_widen_${name}`);
        for (const n of lengths) {
          const cache = pagedCache(arena, random, dtype, headDim, n);
          const out = arena.f32(n * headDim);
          const walk = [Math.floor(n / blockRows), n % blockRows, cache.rowBytes, cache.headOffset];
          const from = [cache.bytes, cache.table, out].map((x) => x.byteOffset);
          arena.call(...from, ...walk, headDim);
          for (let p = 0; p < n; p++) {
            cache.row(p).forEach((v, i) => {
              // A quant times a scale plus a min rounds once or twice.
              const isClose =
                Math.abs(out[p * headDim + i]! - v) <= (dtype.blockElems > 1 ? 1e-6 : 0);
              if (!isClose) expect.fail(`row ${p}: ${out[p * headDim + i]}, expected ${v}`);
            });
          }
          arena.checkGuards();
        }
      },
    );

    it.each(
      (target.run === "interpreted" ? [32, 64] : headDims).filter(
        (n) => n % (target.width / 4) === 0,
      ),
    )("eight queries over widened rows of %i, and one: 1e-6", (headDim) => {
      const random = new Random(headDim);
      const [groups, stride, scoreStride] = [2, headDim + 4, 44];
      const normal = (length: number) => Float32Array.from({ length }, () => random.normal());
      const [queries, rowsOf] = [normal(8 * stride), normal(40 * headDim)];
      const row = (p: number) => rowsOf.subarray(p * headDim, (p + 1) * headDim);
      const scoring = made("attn_scores_many");
      const [q, keys] = [scoring.f32(queries), scoring.f32(rowsOf)];
      const scores = scoring.f32(8 * scoreStride).fill(-5);
      const strides = [stride * 4, 4 * stride * 4, scoreStride * 4];
      const at = [q, keys, scores].map((x) => x.byteOffset);
      scoring.call(...at, groups, 10, headDim, ...strides);
      for (let j = 0; j < 8; j++) {
        for (let p = 0; p < 40; p++) {
          const terms = Array.from(row(p), (v, i) => v * queries[j * stride + i]!);
          expectSum(scores[j * scoreStride + p]!, terms, 1e-6);
        }
        expect(scores[j * scoreStride + 40]).toBe(-5);
      }
      scoring.checkGuards();
      for (const [name, count, perGroup] of [
        ["attn_mix_many", groups, 4],
        ["attn_mix_few", 8, 1],
      ] as const) {
        const mixing = made(name);
        for (const n of [0, 1, 7, 40]) {
          const [weights, values] = [mixing.f32(normal(8 * scoreStride)), mixing.f32(rowsOf)];
          const out = mixing.f32(8 * stride).fill(-5);
          const from = [weights, values, out].map((x) => x.byteOffset);
          mixing.call(
            ...from,
            count,
            n,
            headDim,
            1,
            stride * 4,
            perGroup * stride * 4,
            scoreStride * 4,
          );
          for (let j = 0; j < 8; j++) {
            for (let i = 0; i < headDim; i++) {
              const terms = Array.from(
                { length: n },
                (_, p) => row(p)[i]! * weights[j * scoreStride + p]!,
              );
              expectSum(out[j * stride + i]!, terms, 1e-6);
            }
            expect(out[j * stride + headDim]).toBe(-5);
          }
          mixing.checkGuards();
        }
      }
    });

    // What a step computes together must not show in the results: not in a bit.
    const sameBits = ["f32", "f16", "q8_0", "q4_0", "q5_1"].map((name) => dtypeByName(name)!);
    it.each(sameBits.map((dtype) => [dtype.name, dtype] as const))(
      "%s: the same bits for one query or four, for fewer positions, and in two parts",
      (name, dtype) => {
        const [headDim, n] = [64, 76];
        const arenas = new Map<string, Arena>();
        const same = (queries: number, length: number, part: number) =>
          resultsOf(arenas, queries, name, dtype, { headDim, positions: n, length, part });
        const all = same(4, n, 0);
        expect(same(1, n, 0).scores).toEqual(all.scores);
        expect(same(1, n, 0).out).toEqual(all.out);
        for (const length of [1, 3, 32, 33, 64, 74, 75]) {
          expect(same(4, length, 0).scores).toEqual(all.scores.slice(0, length));
        }
        for (const part of [1, 2, 3, 31, 32, 63, 75]) expect(same(4, n, part).out).toEqual(all.out);
      },
    );

    /** Of the first query. The first `part` positions are mixed by this kernel, the others by the one for a single query. */
    function resultsOf(
      arenas: Map<string, Arena>,
      queries: number,
      name: string,
      dtype: DType,
      shape: { headDim: number; positions: number; length: number; part: number },
    ): { scores: number[]; out: number[] } {
      const { headDim, positions, length, part } = shape;
      const placed = (stem: string, many: number) => {
        const arena = arenas.get(`${stem}${many}`) ?? lowered(stem, many, name);
        arenas.set(`${stem}${many}`, arena);
        const random = new Random(5);
        const cache = pagedCache(arena, random, dtype, headDim, positions);
        const q = arena.f32(Float32Array.from({ length: 4 * headDim }, () => random.normal()));
        const scores = arena.f32(Float32Array.from({ length: 4 * 80 }, () => random.unit()));
        const out = arena.f32(4 * headDim).fill(7);
        return { arena, cache, q, scores, out };
      };
      const walk = ({ rowBytes, headOffset }: Cache, count: number) =>
        [Math.floor(count / blockRows), count % blockRows, rowBytes, headOffset, headDim] as const;
      const s = placed("attn_scores", queries);
      const [keys, table] = [s.cache.bytes.byteOffset, s.cache.table.byteOffset];
      const strides = [headDim * 4, 80 * 4];
      s.arena.call(
        s.q.byteOffset,
        keys,
        table,
        s.scores.byteOffset,
        ...walk(s.cache, length),
        ...strides,
      );
      const m = placed("attn_mix", queries);
      const from = [m.scores, m.cache.bytes, m.cache.table, m.out].map((x) => x.byteOffset);
      m.arena.call(...from, ...walk(m.cache, part || length), 1, 80 * 4, headDim * 4);
      if (part === 0)
        return { scores: [...s.scores.slice(0, length)], out: [...m.out.slice(0, headDim)] };
      // Block by block, beginning in the middle of one.
      const rest = placed("attn_mix", 1);
      rest.out.set(m.out);
      for (let p = part; p < length; ) {
        const inBlock = p % blockRows;
        const count = Math.min(blockRows - inBlock, length - p);
        const { rowBytes, headOffset, bytes, table } = rest.cache;
        rest.arena.call(
          rest.scores.byteOffset + p * 4,
          bytes.byteOffset + inBlock * rowBytes,
          table.byteOffset + Math.floor(p / blockRows) * 4,
          rest.out.byteOffset,
          ...[0, count, rowBytes, headOffset, headDim, 0],
        );
        p += count;
      }
      return { scores: [], out: [...rest.out.slice(0, headDim)] };
    }

    it("store_f16: exact, with overflow, subnormals and halfway cases", () => {
      const random = new Random(1);
      const arena = arenaFor(storeF16, target);
      for (const n of [8, 16, 24, 104, 112].filter((n) => n % (target.width / 4) === 0)) {
        const x = arena.f32(Float32Array.from({ length: n }, () => random.normal()));
        x.set([65519, -65520, 2 ** -24 * 1.5]);
        const out = arena.bytes(2 * n);
        const largest = arena.f32(new Float32Array(1));
        arena.call(x.byteOffset, out.byteOffset, n, largest.byteOffset);
        const want = new Uint8Array(2 * n);
        f16.quantize!(x, 0, want, 0, n);
        expect(out).toEqual(want);
        expect(largest[0]).toBe(65520);
      }
      arena.checkGuards();
    });

    // Four vectors of 64 bytes are two blocks of 32 values: the kernel is for narrower ones.
    it.skipIf(target.width > 32)(
      `quantize_kv_q8_0: the bytes of dtypes/q8_0.ts, away from halfway cases${skippedFor("the kernel is for vectors of up to 32 bytes", target.width > 32)}`,
      () => {
        const random = new Random(2);
        const arena = arenaFor(quantizeKvQ8_0, target);
        for (const n of [32, 64, 96, 320]) {
          const x = arena.f32(Float32Array.from({ length: n }, () => random.normal()));
          if (n > 32) x.fill(0, 32, 64);
          const out = arena.bytes((n / 32) * 34);
          const largest = arena.f32(new Float32Array(1));
          arena.call(x.byteOffset, out.byteOffset, n, largest.byteOffset);
          const want = new Uint8Array(out.length);
          q8_0.quantize!(x, 0, want, 0, n / 32);
          expect(out).toEqual(want);
          expect(largest[0]).toBe(x.reduce((most, value) => Math.max(most, Math.abs(value)), 0));
        }
        arena.checkGuards();
      },
    );
  },
);
