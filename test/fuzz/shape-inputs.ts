// Cases of the fuzz target "shapes": one at random, and a whole case of any JSON, so that a minimiser may cut fields and
// numbers as it likes.

import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { Random } from "../support/random.ts";
import { isInterpreted, type ShapeCase, ways } from "./shape-case.ts";
import { hasCache, hasHeads, isProduct, shapeOps } from "./shape-graph.ts";

const types = allDTypes().map(({ name }) => name);
const caches = ["f32", "f16", "q8_0"];
const counts = [1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17, 23, 29, 32, 33];
const heights = [1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 97, 128, 130, 251, 344];
const widths = [
  1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 20, 31, 32, 36, 45, 48, 61, 64, 80, 96, 100, 160, 257,
];
const blocksWide = [1, 2, 3, 5, 7, 8, 13];
const heads = [1, 2, 4, 6, 8, 12, 16, 20, 32, 36, 40, 64, 72, 80, 96, 128, 160, 192, 256];

/** Kernels that are interpreted take their time: smaller cases, and fewer. */
const MOST_INTERPRETED = 25_000;
const [slowWays, fastWays] = [true, false].map((slow) =>
  ways.filter((way) => isInterpreted({ way }) === slow),
);

export function randomCase(seed: number): ShapeCase {
  const r = new Random(seed);
  const op =
    r.below(2) === 0 ? r.pick(shapeOps) : r.pick(["matmul", "attention", "products", "layer"]);
  const type = r.pick(types);
  const block = dtypeByName(type)!.blockElems;
  const isTyped = op === "embed" || isProduct({ op });
  return wholeCase({
    op,
    way: r.pick(r.below(3) === 0 ? slowWays! : fastWays!),
    type,
    kv: r.pick(caches),
    rows: r.pick(heights),
    cols: isTyped && block > 1 ? block * r.pick(blocksWide) : r.pick(widths),
    tokens: r.pick(counts),
    room: r.below(2) * r.below(4),
    before: hasCache({ op })
      ? r.below(2) * r.pick([1, 15, 16, 30, 31, 32, 33, 63, 64, 65, 130])
      : 0,
    headDim: r.pick(heads),
    kvHeads: 1 + r.below(3),
    sharing: 1 + r.below(9),
    dims: 2 * (1 + r.below(64)),
    threads: r.below(2) === 0 ? 1 : 2 + r.below(8),
    started: r.below(30) === 0,
    variant: r.below(5) === 0 ? -1 : r.below(60),
    knobs: r.below(3) === 0 ? r.below(9) : 0,
    seed: r.below(1000),
  });
}

/** The case that is nearest to what was given: everything in range, columns in whole blocks. */
export function wholeCase(given: Partial<Record<keyof ShapeCase, unknown>>): ShapeCase {
  const number = (key: keyof ShapeCase, least: number, most: number): number => {
    const value = Number(given[key] ?? least);
    return Number.isFinite(value) ? Math.min(most, Math.max(least, Math.trunc(value))) : least;
  };
  const word = (key: keyof ShapeCase, words: readonly string[]): string => {
    const found = words.find((one) => one === given[key]);
    return found ?? words[0]!;
  };
  const op = word("op", shapeOps);
  const type = word("type", types);
  const way = word("way", ways);
  const isTyped = op === "embed" || isProduct({ op });
  const block = isTyped ? dtypeByName(type)!.blockElems : 1;
  const kv = word("kv", caches);
  const kvBlock = hasCache({ op }) ? dtypeByName(kv)!.blockElems : 1;
  const headDim = Math.ceil(number("headDim", 1, 256) / kvBlock) * kvBlock;
  const isRope = op.startsWith("rope_") || op === "layer";
  const evenHead = isRope ? headDim + (headDim % 2) : headDim;
  const whole: ShapeCase = {
    op,
    way,
    type,
    kv,
    rows:
      op === "layer" ? Math.ceil(number("rows", 1, 1024) / block) * block : number("rows", 1, 1024),
    cols: Math.ceil(number("cols", 1, 4096) / block) * block,
    tokens: number("tokens", 1, 64),
    room: number("room", 0, 16),
    before: hasCache({ op }) ? number("before", 0, 300) : 0,
    headDim: evenHead,
    kvHeads: number("kvHeads", 1, 8),
    sharing: number("sharing", 1, 16),
    dims: isRope ? Math.min(evenHead, 2 * number("dims", 1, 128)) : 2,
    threads: number("threads", 1, 16),
    started: given.started === true,
    variant: number("variant", -1, 1000),
    knobs: number("knobs", 0, 100),
    seed: number("seed", 0, 2 ** 31),
  };
  return isInterpreted(whole) ? smallEnough(whole) : whole;
}

/** Fewer tokens, then fewer rows or heads, until the interpreter is done with it in a second or so. */
function smallEnough(c: ShapeCase): ShapeCase {
  const work = (one: ShapeCase): number => {
    const ofHeads = one.kvHeads * one.sharing * one.headDim;
    const cols = hasHeads(one) ? ofHeads : one.cols;
    if (one.op === "layer") return one.tokens * cols * (3 * one.rows + 3 * ofHeads);
    if (isProduct(one)) return one.tokens * one.rows * cols;
    return one.tokens * cols * (one.op === "attention" ? one.before + one.tokens : 16);
  };
  let small = c;
  while (work(small) > MOST_INTERPRETED) {
    const { tokens, rows, before, sharing, kvHeads, headDim, cols } = small;
    if (isProduct(small) && small.op !== "layer" && rows > 16 && rows > tokens * 4)
      small = { ...small, rows: rows >> 1 };
    else if (before > 33) small = { ...small, before: before >> 1 };
    else if ((hasHeads(small) || hasCache(small)) && sharing > 5)
      small = { ...small, sharing: sharing - 1 };
    else if ((hasHeads(small) || hasCache(small)) && kvHeads > 1)
      small = { ...small, kvHeads: kvHeads - 1 };
    else if (tokens > 1) small = { ...small, tokens: tokens - 1 };
    else if (rows > 1 && isProduct(small) && small.op !== "layer")
      small = { ...small, rows: rows >> 1 };
    else if (before > 0) small = { ...small, before: before >> 1 };
    else return { ...small, sharing: 1, headDim, cols };
  }
  return small;
}
