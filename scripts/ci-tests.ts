// Runs every tier of the tests, one after the other, and says of each what passed, failed and was not run, and why. A file in which a test
// failed is run once more, alone, after all tiers: what passes then is a race, is named as one, and does not fail the run. What
// failed twice, what could not be loaded and what was left out without a reason does.
//
// The second driver of the GPU's tests comes last and ends when the time is over (LANTERN_CI_SECONDS, default 3900): the files that it did
// not come to are named. A quarter of that time later everything else ends, too, second runs among it, and what did not run fails the run.
//
//   node scripts/ci-tests.ts SUMMARY [TIER...]     writes the summary to the file SUMMARY as well

import { spawnSync } from "node:child_process";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, matchesGlob } from "node:path";
import { driverManifest } from "../test/support/gpu-drivers.ts";
import {
  didNotEnd,
  firstLine,
  linesOf,
  racesOf,
  runAgain,
  type Tally,
  withSecond,
  wrongIn,
} from "../test/tiers/tally.ts";
import { gpu, gpuHalves, gpuSecond, long, rest, slow } from "../test/tiers/tiers.ts";

const [summaryPath, ...asked] = process.argv.slice(2);
const all = globSync("test/**/*.test.ts").sort();
const matching = (patterns: readonly string[]) =>
  all.filter((file) => patterns.some((pattern) => matchesGlob(file, pattern)));
const later = new Set([rest, long, slow, gpu].flatMap(matching));

interface Tier {
  readonly name: string;
  readonly config: string;
  readonly files: readonly string[];
  readonly options?: readonly string[];
  /** It is ended when the time is over, which is no failure. */
  readonly mayEnd?: boolean;
}

const gpuConfig = "test/tiers/gpu.config.ts";
const halves = new Set(matching(gpuHalves));
const hasBoth = driverManifest("swiftshader") && driverManifest("lavapipe");
const gpuTiers: readonly Tier[] =
  hasBoth && !process.env.VK_ICD_FILENAMES
    ? [
        {
          name: "gpu",
          config: gpuConfig,
          files: matching(gpu).filter((file) => !halves.has(file)),
          options: ["--project=swiftshader*"],
        },
        {
          name: "gpu-lavapipe",
          config: gpuConfig,
          files: matching(gpuSecond),
          options: ["--project=lavapipe*"],
          mayEnd: true,
        },
      ]
    : [{ name: "gpu", config: gpuConfig, files: matching(gpu) }];

const everyTier: readonly Tier[] = [
  { name: "quick", config: "vitest.config.ts", files: all.filter((file) => !later.has(file)) },
  ...Object.entries({ rest, long, slow }).map(([name, patterns]): Tier => {
    return { name, config: `test/tiers/${name}.config.ts`, files: matching(patterns) };
  }),
  ...gpuTiers,
];
const tiers = everyTier.filter(({ name }) => asked.length === 0 || asked.includes(name));

const startedAt = Date.now();
const secondsInAll = Number(process.env.LANTERN_CI_SECONDS ?? 3900);
const moreForSecondRuns = 0.25;
/** Until the second driver's tests end, or (`mayEnd` is false) everything. */
function secondsLeft(mayEnd: boolean): number {
  const end = mayEnd ? secondsInAll : (1 + moreForSecondRuns) * secondsInAll;
  return Math.max(0, Math.round(end - (Date.now() - startedAt) / 1000));
}

const folder = mkdtempSync(join(tmpdir(), "lantern-tally-"));

/** undefined: vitest left no report. */
function run(
  { config, options: own = [], mayEnd = false }: Tier,
  options: readonly string[],
): Tally | undefined {
  const path = join(folder, "tally.json");
  rmSync(path, { force: true });
  const args = ["vitest", "run", "--config", config, "--reporter=default"];
  const command = ["npx", "--no-install", ...args, "--reporter=./test/tiers/tally.config.ts"];
  const seconds = secondsLeft(mayEnd);
  if (seconds === 0) return undefined;
  const limit = ["-s", "INT", "-k", "30", String(seconds)];
  spawnSync("timeout", [...limit, ...command, ...own, ...options], {
    stdio: "inherit",
    env: { ...process.env, LANTERN_TALLY: path },
  });
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : undefined;
}

const wrong: string[] = [];
const summary: string[] = [];
const say = (line: string): void => {
  console.log(line);
  summary.push(line);
};

const firsts = tiers.map((tier) => {
  const since = Date.now();
  console.log(`\n== ${tier.name}: ${tier.files.length} files`);
  const first = run(tier, []);
  const isEnded = secondsLeft(tier.mayEnd ?? false) === 0;
  const seconds = Math.round((Date.now() - since) / 1000);
  for (const line of first ? linesOf(tier.name, first) : []) console.log(line);
  console.log(`== ${tier.name}: ${seconds} s`);
  return { tier, first, seconds, isEnded };
});

const races: string[] = [];
const left: string[] = [];
const lasts = firsts.map(({ tier, first, seconds, isEnded }) => {
  const missing = tier.mayEnd ? left : wrong;
  if (!first) {
    const why = isEnded ? "the time was over" : "the test runner left no report";
    (isEnded ? missing : wrong).push(`${tier.name}: ${tier.files.length} files: ${why}`);
    return { tier, last: undefined, seconds };
  }
  // Tests that the end of the time cut off did not fail.
  let last: Tally = isEnded
    ? { ...first, tests: first.tests.filter(({ why }) => why !== didNotEnd), unhandled: [] }
    : first;
  for (const file of runAgain(last)) {
    if (secondsLeft(false) === 0) {
      wrong.push(`${tier.name}: not run once more, the time was over: ${file}`);
      continue;
    }
    console.log(`\n== once more, alone: ${file}`);
    const second = run({ ...tier, mayEnd: false }, [file, "--maxWorkers=1"]);
    if (second) last = withSecond(last, file, second);
  }
  for (const { file, name, why } of racesOf(first, last)) {
    races.push(`  ${file} > ${name}: ${firstLine(why)}`);
  }
  const ran = new Set(last.tests.map(({ file }) => file));
  const missed = isEnded ? tier.files.filter((file) => !ran.has(file)) : [];
  for (const file of missed) missing.push(`${tier.name}: not run, the time was over: ${file}`);
  const files = tier.files.filter((file) => !missed.includes(file));
  wrong.push(...wrongIn(last, files).map((line) => `${tier.name}: ${line}`));
  return { tier, last, seconds };
});
rmSync(folder, { recursive: true, force: true });

console.log("");
for (const line of [...wrong, ...left]) say(line);
if (races.length > 0) {
  say("RACES: passed only when run alone. Each is a bug to mend:");
  for (const race of races) say(race);
}
let [passed, failed] = [0, 0];
for (const { tier, last, seconds } of lasts) {
  if (!last) continue;
  for (const line of linesOf(tier.name, last)) say(line);
  say(`  ${seconds} s`);
  passed += last.tests.filter(({ state }) => state === "passed").length;
  failed += last.tests.filter(({ state }) => state === "failed").length + last.broken.length;
}
for (const driver of ["swiftshader", "lavapipe"] as const) {
  if (!driverManifest(driver)) say(`gpu: not run on ${driver}: it is not installed`);
}
say(`${passed} passed, ${failed} failed`);
if (summaryPath) writeFileSync(summaryPath, `${summary.join("\n")}\n`);
process.exitCode = wrong.length > 0 ? 1 : 0;
