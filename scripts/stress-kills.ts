// npm run stress:kills -- [KILLS] [SEED]: kills a server (kill -9) 100 times while it writes conversations, uploads, batches, saved slots
// and stored state, half of the times at a random moment, half right after an acknowledgement. After each start all acknowledged data
// must be there.

import { killWrites, type WritesReport } from "../test/server/kill-writes.ts";
import { beginStress } from "./stress-harness.ts";

const usual = { count: 100, seed: Date.now() % 1e6 };
const { count: kills, seed, folder } = beginStress("stress:kills -- [KILLS] [SEED]", usual);

function textOf({ kills: killed, acknowledged, lost, said }: WritesReport): string {
  const counts = Object.entries(acknowledged).map(([name, count]) => `${count} ${name}`);
  return `${killed} kills: ${counts.join(", ")}; lost: ${lost.length}, said of damage: ${said.length}`;
}

const onKill = (report: WritesReport): void => {
  if (report.kills % 10 === 0) console.log(textOf(report));
};
const report = await killWrites(folder, { kills, seed, onKill });
console.log(textOf(report));
const wrong = [...report.lost, ...report.said, ...report.left];
for (const one of wrong) console.error(`seed ${seed}: ${one}`);
process.exitCode = wrong.length > 0 ? 1 : 0;
