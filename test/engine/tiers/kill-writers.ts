// Kills processes that write stored state, at random moments, and reads what they left: every unit that is found must be the one that
// its key stands for, and nothing may be said to be damaged.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { unitId } from "../../../src/engine/tiers/keys.ts";
import type { UnitFacts } from "../../../src/engine/tiers/segment.ts";
import type { Random } from "../../support/random.ts";
import { unitBytes, unitData, unitTier } from "./unit-writer.ts";

const program = fileURLToPath(new URL("unit-writer.ts", import.meta.url));

export interface Survivors {
  units: number;
  wrong: number;
  said: string[];
}

/** Starts a writer and kills it some milliseconds after it has begun. */
export async function killWriter(folder: string, random: Random, budget = 64e6): Promise<void> {
  const child = spawn(process.execPath, [program, folder, `${random.below(50)}`, `${budget}`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const closed = once(child, "close");
  for await (const line of createInterface({ input: child.stdout })) if (line === "writing") break;
  await new Promise((resolve) => setTimeout(resolve, random.below(40)));
  child.kill("SIGKILL");
  await closed;
}

/** Reads every unit. */
export async function survivors(folder: string, budgetBytes = 64e6): Promise<Survivors> {
  const found = new Map<string, UnitFacts>();
  const said: string[] = [];
  const tier = await unitTier(folder, {
    budgetBytes,
    onUnit: (unit) => found.set(unitId(unit.key, unit.kind), unit),
    say: (sentence) => said.push(sentence),
  });
  let wrong = 0;
  for (const [id, { key, kind }] of found) {
    const bytes = new Uint8Array(unitBytes[kind]!);
    const isRead = await tier!.read(id, [bytes]);
    if (!isRead || Buffer.compare(bytes, unitData(key, kind)) !== 0) wrong++;
  }
  await tier?.close();
  return { units: found.size, wrong, said };
}
