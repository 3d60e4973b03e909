// npm run stress:kills -- [KILLS] [SEED]: kills a server (kill -9) 100 times while it writes conversations, uploads, batches, saved slots
// and stored state, half of the times at a random moment, half right after it has acknowledged something. After each start everything
// that was acknowledged must be there.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { killWrites, type WritesReport } from "../test/server/kill-writes.ts";

const kills = Number(process.argv[2] ?? 100);
const seed = Number(process.argv[3] ?? Date.now() % 1e6);
if (!Number.isInteger(kills) || kills < 1 || !Number.isInteger(seed)) {
  console.error("usage: npm run stress:kills -- [KILLS] [SEED]");
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), "lantern-kills-"));

function textOf({ kills: killed, acknowledged, lost, said }: WritesReport): string {
  const counts = Object.entries(acknowledged).map(([name, count]) => `${count} ${name}`);
  return `${killed} kills: ${counts.join(", ")}; lost: ${lost.length}, said of damage: ${said.length}`;
}

try {
  const onKill = (report: WritesReport): void => {
    if (report.kills % 10 === 0) console.log(textOf(report));
  };
  const report = await killWrites(folder, { kills, seed, onKill });
  console.log(textOf(report));
  const wrong = [...report.lost, ...report.said, ...report.left];
  for (const one of wrong) console.error(`seed ${seed}: ${one}`);
  process.exitCode = wrong.length > 0 ? 1 : 0;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
