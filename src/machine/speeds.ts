// Stores the fraction of its limit that each model reached here. The fraction turns the speed that a machine allows
// into the expected speed. A composition root like machine.ts, with the same rule: no generation fails or waits because
// of it.

import type { ModelInfo, Timings } from "../api/api.ts";
import { mainType } from "../base/file-type-names.ts";
import { isDisturbed } from "../base/machine-load.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";

export interface SpeedRecord {
  /** The most common type of its weights: "q4_k". */
  readonly type: string;
  /** Bytes of its weights: small models reach less of their limit than large ones. */
  readonly bytes: number;
  /** The fraction of the limit that generation reached: 0.63. */
  readonly share: number;
  /** ISO date and time. */
  readonly at: string;
}

interface SpeedFile {
  readonly cpu: string;
  readonly cores: number;
  readonly runs: readonly SpeedRecord[];
}

const SPEED_FILE = "speeds.json";
const mostRuns = 100;
/** Shorter generations are not significant. */
const fewestTokens = 16;
/** A larger fraction means that the limit is wrong. */
const noise = 1.05;

/** Stores the speed of a generation. Skips short ones, GPUs, busy machines, and machines that were never measured well. */
export async function rememberSpeed(
  info: Pick<ModelInfo, "weightType" | "weightBytes" | "backend">,
  timings: Timings,
): Promise<void> {
  const { limits, others } = timings;
  const reached = limits?.generation;
  if (limits?.quick || (others && isDisturbed(others.cores, others.ofCores))) return;
  // With drafts, batches have several tokens: that is no speed of one token after the other.
  if (!reached || timings.generatedTokens < fewestTokens || timings.speculation) return;
  if (!(reached.fraction > 0 && reached.fraction <= noise)) return;
  if (reached.resource === "disk" || info.backend.placement.some(({ isDevice }) => isDevice))
    return;
  try {
    const platform = await currentPlatform();
    const share = Math.min(1, reached.fraction);
    const { weightType, weightBytes: bytes } = info;
    const run: SpeedRecord = {
      type: mainType(weightType),
      bytes,
      share,
      at: new Date().toISOString(),
    };
    const runs = [...(await readRuns(platform)), run].slice(-mostRuns);
    const file: SpeedFile = { cpu: platform.cpu(), cores: platform.cores, runs };
    await platform.smallFiles().write(SPEED_FILE, `${JSON.stringify(file)}\n`);
  } catch {
    // It cannot be stored: the next run tries again.
  }
}

/** The stored records of this machine, oldest first. */
export async function rememberedSpeeds(): Promise<readonly SpeedRecord[]> {
  return await readRuns(await currentPlatform());
}

async function readRuns(platform: Platform): Promise<readonly SpeedRecord[]> {
  try {
    const text = await platform.smallFiles().read(SPEED_FILE);
    const { cpu, cores, runs } = JSON.parse(text ?? "{}") as Partial<SpeedFile>;
    // Another processor reaches another fraction.
    if (cpu !== platform.cpu() || cores !== platform.cores || !Array.isArray(runs)) return [];
    return runs.filter(
      (run) => typeof run?.type === "string" && run.bytes > 0 && run.share > 0 && run.share <= 1,
    );
  } catch {
    return [];
  }
}
