// What the knobs of a matmul's kernels are worth here: every value of every knob beside the usual ones, in turns, over the same
// weights, which come from memory. Not a test: it asserts nothing. `lantern tune` searches the same, and remembers.
//
//   node bench/knobs.ts q4_0,q8_0 [-t 1,2] [-m 1,32] [-r 15] [-v 4s.compact,8s.compact] [-k 2048] [-n 5632]
//
// Prints, for each type, number of threads and of tokens: the time of each variant (the lower quartile and the median of the
// rounds), what that is in GB/s of weights as in a file, and the median of the ratios to the first one, round by round.
// Some values are the usual ones: how far their ratios are from 1 is how far others may be for no reason.
// Without -v: for one token 4s.compact and 8s.compact, for more the default that is not in AMX tiles.

import { Command } from "commander";
import { refusals } from "../src/backends/cpu/native/choice.ts";
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
import { MatmulTimes } from "../src/tune/measure.ts";
import { STREAM_BYTES } from "../src/tune/space.ts";

/** More than caches hold. */
const streamBytes = 2 * STREAM_BYTES.full;

interface Flags {
  threads: number[];
  tokens: number[];
  rounds: number;
  variants?: string[];
  rows: number;
  columns: number;
}

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

async function compare(dtype: string, threads: number, m: number, flags: Flags): Promise<void> {
  const problem = { dtype, n: flags.rows, k: flags.columns };
  const variants = variantsFor(dtype, m, flags.variants);
  const bench = await MatmulTimes.open({
    problem,
    variants,
    tokens: [m],
    threads,
    whole: false,
    streamBytes,
    startThread: () => platform.startThread("compute"),
    native,
  });
  const bytes = bytesFor(dtypeByName(dtype)!, problem.n * problem.k);
  const times: number[][] = variants.map(() => []);
  for (let round = 0; round < flags.rounds + 2; round++) {
    // Forwards and backwards: whoever comes first has no advantage of it.
    const order = [...variants.keys()];
    for (const index of round % 2 === 0 ? order : order.toReversed()) {
      const { init, compute } = await bench.measure(index, m, "spin");
      if (round >= 2) times[index]!.push(init + compute);
    }
  }
  bench.dispose();
  console.log(`\n${dtype} ${problem.n} x ${problem.k}, ${threads} threads, ${m} tokens`);
  console.log("    us  median   GB/s  ratio");
  print(variants, times, bytes);
}

function print(variants: readonly MatmulVariant[], times: readonly number[][], bytes: number) {
  const rows = variants.map((variant, index) => {
    const own = times[index]!;
    const ratio = at(
      own.map((time, round) => times[0]![round]! / time),
      0.5,
    );
    return { id: variant.id, quartile: at(own, 0.25), median: at(own, 0.5), ratio };
  });
  for (const { id, quartile, median, ratio } of rows.toSorted((a, b) => b.ratio - a.ratio)) {
    const speed = (bytes / quartile / 1000).toFixed(2);
    const numbers = [quartile.toFixed(1), median.toFixed(1), speed, ratio.toFixed(3)];
    console.log(`${numbers.map((text) => text.padStart(6)).join("  ")}  ${id}`);
  }
}

function at(values: readonly number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) * share)]!;
}

const numbers = (text: string) => text.split(",").map(Number);
await new Command("knobs")
  .argument("<types>", "types of weights: q4_0,q8_0", (text: string) => text.split(","))
  .option("-t, --threads <n,...>", "compute threads", numbers, [1])
  .option("-m, --tokens <n,...>", "tokens of a step", numbers, [1])
  .option("-r, --rounds <n>", "how often each is measured", Number, 15)
  .option("-v, --variants <id,...>", "variants whose knobs are turned", (text) => text.split(","))
  .option("-n, --rows <n>", "rows of the matrix", Number, 5632)
  .option("-k, --columns <n>", "columns of the matrix", Number, 2048)
  .action(async (types: string[], flags: Flags) => {
    for (const dtype of types) {
      for (const threads of flags.threads) {
        for (const m of flags.tokens) await compare(dtype, threads, m, flags);
      }
    }
    process.exit();
  })
  .parseAsync();
