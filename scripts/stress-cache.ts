// npm run stress:cache -- [KILLS]: writers of stored state are killed (kill -9) at random moments, two at a time on one folder, 1,000
// times; every ten kills all that they left is read and compared with what it must be. Prints a line every 50 kills.
//
// npm run stress:cache -- server [KILLS] [SEED]: kills a real server in the same way, 200 times, and compares what it writes after each
// start with the text of a server that is never killed.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { killWriter, survivors } from "../test/engine/tiers/kill-writers.ts";
import { type KillReport, killServers } from "../test/server/kill-servers.ts";
import { Random } from "../test/support/random.ts";

const args = process.argv.slice(2);
const isServer = args[0] === "server";
if (isServer) args.shift();
const kills = Number(args[0] ?? (isServer ? 200 : 1000));
const seed = Number(args[1] ?? Date.now() % 1e6);
if (!Number.isInteger(kills) || kills < 1 || !Number.isInteger(seed)) {
  console.error("usage: npm run stress:cache -- [server] [KILLS] [SEED]");
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), "lantern-kills-"));
const random = new Random(seed);
/** So small that segments are removed while others are written. */
const budget = 20e6;
let read = 0;

function textOf({ kills: killed, answers, tokens, wrong }: KillReport): string {
  const { kv, ram, disk, computed } = tokens;
  return `${killed} kills: ${answers} answers, ${wrong.length} of them wrong; prompt tokens: ${disk} from disk, ${ram} from memory, ${kv} in the KV cache, ${computed} computed`;
}

try {
  if (isServer) {
    const onKill = (report: KillReport): void => {
      if (report.kills % 20 === 0) console.log(textOf(report));
    };
    const { wrong, said } = await killServers(folder, { kills, seed, onKill });
    for (const one of [...wrong, ...said]) console.error(`seed ${seed}: ${one}`);
    if (wrong.length + said.length > 0) process.exitCode = 1;
  } else await killWriters();
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function killWriters(): Promise<void> {
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
}
