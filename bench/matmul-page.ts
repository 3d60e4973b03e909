// The matmuls of `lantern bench matmul` in a page of Chromium, where kernels are always WebAssembly: GFLOPS of each type, and its
// ratio to the first type's.
//
//   npm run bench:matmul-page -- [--type f32,q8_0,q4_0,q4_k,q6_k] [-M 32,1] [-N 1024] [-K 1024] [-r 3] [--js-flags=--no-enable-avx-vnni]
//
// --js-flags are V8's: without AVX-VNNI, its dot product is that of most x64 processors (docs/inside/kernels.md). The best round counts.

import { measure } from "../src/base/measure.ts";
import { bench, count, counts, number, text, texts } from "./harness.ts";
import { withPage } from "./wllama/arena.ts";

const flags = {
  type: texts(["f32", "q8_0", "q4_0", "q4_k", "q6_k"]),
  tokens: counts([32, 1], "M"),
  rows: count(1024, "N"),
  columns: count(1024, "K"),
  repetitions: count(3, "r"),
  seconds: number(0.15),
  jsFlags: text(),
};

await bench("npm run bench:matmul-page --", "", flags, async (given) => {
  const { rows: n, columns: k, seconds } = given;
  const more = given.jsFlags === undefined ? [] : [`--js-flags=${given.jsFlags}`];
  await withPage({ more }, async ({ page, browser }) => {
    console.log(`Chromium ${browser.version()}, [M, ${k}] x [${n}, ${k}]^T, one thread`);
    for (const m of given.tokens) {
      const { samples } = await measure({
        contestants: given.type,
        rounds: given.repetitions,
        run: async (type) => {
          const options = { type, n, k, m, threads: 1, level: 3, seconds };
          const run = (asked: object) => window.lantern.benchMatmul(asked as never);
          return (await page.evaluate(run, options)).gflops;
        },
      });
      const best = samples.map((all) => Math.max(...all));
      for (const [i, type] of given.type.entries()) {
        const ratio = (best[i]! / best[0]!).toFixed(2);
        console.log(`M=${m} ${type.padEnd(8)} ${best[i]!.toFixed(1).padStart(6)} GFLOPS ${ratio}x`);
      }
    }
  });
});
