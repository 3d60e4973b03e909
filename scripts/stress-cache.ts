// npm run stress:cache -- [KILLS]: writers of stored state are killed (kill -9) at random moments, two at a time on one folder, 1,000
// times; every ten kills all of their files are read and compared with the expected state. Prints a line every 50 kills.
//
// npm run stress:cache -- server [KILLS] [SEED]: kills a real server in the same way, 200 times, and compares its text after each start
// with the text of a server that is never killed.

import { killWriter, survivors } from "../test/engine/tiers/kill-writers.ts";
import { type KillReport, killServers } from "../test/server/kill-servers.ts";
import { beginStress } from "./stress-harness.ts";

const args = process.argv.slice(2);
const isServer = args[0] === "server";
const usage = "stress:cache -- [server] [KILLS] [SEED]";
const usual = { count: isServer ? 200 : 1000, seed: Date.now() % 1e6 };
const stress = beginStress(usage, usual, isServer ? args.slice(1) : args);
const { count: kills, seed, random, folder } = stress;
/** So small that segments are removed while others are written. */
const budget = 20e6;
let read = 0;

function textOf({ kills: killed, answers, tokens, wrong }: KillReport): string {
  const { kv, ram, disk, computed } = tokens;
  return `${killed} kills: ${answers} answers, ${wrong.length} of them wrong; prompt tokens: ${disk} from disk, ${ram} from memory, ${kv} in the KV cache, ${computed} computed`;
}

if (isServer) {
  const onKill = (report: KillReport): void => {
    if (report.kills % 20 === 0) console.log(textOf(report));
  };
  const { wrong, said } = await killServers(folder, { kills, seed, onKill });
  for (const one of [...wrong, ...said]) console.error(`seed ${seed}: ${one}`);
  if (wrong.length + said.length > 0) process.exitCode = 1;
} else await killWriters();

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
