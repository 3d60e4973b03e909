// npm run stress:cache -- [KILLS]: writers of stored state are killed (kill -9) at random moments, two at a time on one folder, 1,000
// times; every ten kills all that they left is read and compared with what it must be. Prints a line every 50 kills.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { killWriter, survivors } from "../test/engine/tiers/kill-writers.ts";
import { Random } from "../test/support/random.ts";

const kills = Number(process.argv[2] ?? 1000);
const seed = Number(process.argv[3] ?? Date.now() % 1e6);
if (!Number.isInteger(kills) || kills < 1) {
  console.error("usage: npm run stress:cache -- [KILLS] [SEED]");
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), "lantern-kills-"));
const random = new Random(seed);
/** So small that segments are removed while others are written. */
const budget = 20e6;
let read = 0;
try {
  for (let killed = 0; killed < kills; killed += 2) {
    await Promise.all([killWriter(folder, random, budget), killWriter(folder, random, budget)]);
    if (killed % 10 !== 8 && killed + 2 < kills) continue;
    const { units, wrong, said } = await survivors(folder, budget);
    read += units;
    if (wrong > 0 || said.length > 0) {
      console.error(
        `after ${killed + 2} kills (seed ${seed}): ${wrong} of ${units} units are wrong. ${said.join("; ")}`,
      );
      process.exitCode = 1;
      break;
    }
    if ((killed + 2) % 50 === 0)
      console.log(`${killed + 2} kills: ${read} units were read, all right`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
