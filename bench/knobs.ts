// What the knobs of a matmul's kernels are worth here: every value of every knob beside the usual ones, in turns, over the same
// weights, which come from memory. `lantern tune` searches the same, and remembers.
//
//   node bench/knobs.ts q4_0,q8_0 [-t 1,2] [-m 1,32] [-r 15] [-v 4s.compact,8s.compact] [-k 2048] [-n 5632]
//
// Prints, for each type, number of threads and of tokens: the time of each variant (the lower quartile and the median of the
// rounds), what that is in GB/s of weights as in a file, and the median of the ratios to the first one, round by round.
// Some values are the usual ones: how far their ratios are from 1 is how far others may be for no reason.
// Without -v: for one token 4s.compact and 8s.compact, for more the default that is not in AMX tiles.

import { refusals } from "../src/backends/cpu/native/choice.ts";
import { measure, medianRatio, quantile } from "../src/base/measure.ts";
import { bytesFor } from "../src/dtypes/dtype.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { type Knobs, knobNames, turned } from "../src/kernels/knobs.ts";
import {
  defaultVariant,
  hasKnobs,
  type MatmulVariant,
  variantById,
  withKnobs,
} from "../src/kernels/matmul-variants.ts";
import { nativeHere } from "../src/machine/native.ts";
import { currentPlatform } from "../src/platform/current.ts";
import { total } from "../src/tune/confirm.ts";
import { MatmulTimes } from "../src/tune/measure.ts";
import { STREAM_BYTES } from "../src/tune/space.ts";
import { bench, count, counts, texts, type Values } from "./harness.ts";

/** More than caches hold. */
const streamBytes = 2 * STREAM_BYTES.full;

const flags = {
  threads: counts([1], "t"),
  tokens: counts([1], "m"),
  rounds: count(15, "r"),
  variants: texts(undefined, "v"),
  rows: count(5632, "n"),
  columns: count(2048, "k"),
};

const platform = await currentPlatform();
const native = await nativeHere(platform);
if (!native) throw new Error("no machine code here: there are no knobs");
const { target } = native;

const together: readonly Knobs[] = [
  { ahead: 1024, unroll: 2 },
  { ahead: 4096, unroll: 2 },
  { unroll: 2, order: "interleaved" },
  { unroll: 2, pipelined: true },
];

function variantsFor(dtype: string, tokens: number, wanted: readonly string[] | undefined) {
  const ids = wanted ?? (tokens === 1 ? ["4s.compact", "8s.compact"] : [usualTile(dtype, tokens)]);
  const bases = ids.map((id) => {
    const found = variantById(id, target);
    if (!found) throw new Error(`no variant ${id} on ${target.name}`);
    return found;
  });
  const all = bases.flatMap((base) => {
    if (!hasKnobs(base, target)) return [base];
    const others = [...knobNames.flatMap((name) => turned({}, name)), ...together];
    return [base, ...others.map((knobs) => withKnobs(base, { ...base.knobs, ...knobs }))];
  });
  return all.filter((one) => {
    const reason = refusals(native!)(dtype, one);
    if (reason !== undefined) console.log(`${one.id}: ${reason}`);
    return reason === undefined;
  });
}

/** The default's id, in vectors. */
function usualTile(dtype: string, tokens: number): string {
  const { amx: _, ...vectors } = target;
  return defaultVariant(dtype, tokens, vectors).id;
}

async function compare(dtype: string, threads: number, m: number, given: Values<typeof flags>) {
  const problem = { dtype, n: given.rows, k: given.columns };
  const variants = variantsFor(dtype, m, given.variants);
  const times = await MatmulTimes.open({
    ...{ problem, variants, tokens: [m], threads, whole: false, streamBytes },
    startThread: () => platform.startThread("compute"),
    native,
  });
  const { samples } = await measure({
    contestants: [...variants.keys()],
    rounds: given.rounds,
    warmUps: 2,
    run: async (index) => total(await times.measure(index, m, "spin")),
  });
  times.dispose();
  console.log(`\n${dtype} ${problem.n} x ${problem.k}, ${threads} threads, ${m} tokens`);
  console.log("    us  median   GB/s  ratio");
  print(variants, samples, bytesFor(dtypeByName(dtype)!, problem.n * problem.k));
}

function print(variants: readonly MatmulVariant[], samples: readonly number[][], bytes: number) {
  const rows = variants.map(({ id }, index) => {
    const own = samples[index]!;
    const [quartile, median] = [quantile(own, 0.25), quantile(own, 0.5)];
    return { id, quartile, median, ratio: medianRatio(samples[0]!, own) };
  });
  for (const { id, quartile, median, ratio } of rows.toSorted((a, b) => b.ratio - a.ratio)) {
    const speed = (bytes / quartile / 1000).toFixed(2);
    const numbers = [quartile.toFixed(1), median.toFixed(1), speed, ratio.toFixed(3)];
    console.log(`${numbers.map((text) => text.padStart(6)).join("  ")}  ${id}`);
  }
}

await bench("node bench/knobs.ts", "TYPE,...", flags, async (given, [types]) => {
  for (const dtype of types!.split(",")) {
    for (const threads of given.threads) {
      for (const m of given.tokens) await compare(dtype, threads, m, given);
    }
  }
  process.exit();
});
