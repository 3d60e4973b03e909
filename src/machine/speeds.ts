// How much of its limit a model really reached here, remembered from run to run: what turns the speed that a machine
// allows into the one that it will probably reach. A composition root, as machine.ts is, and with its rule: no generation
// fails or waits because of it.

import type { ModelInfo, Timings } from "../api/api.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";

export interface SpeedRecord {
  /** The most common type of its weights: "q4_k". */
  readonly type: string;
  /** Of its weights: small models reach less of their limit than large ones. */
  readonly bytes: number;
  /** Of the limit, what generation reached: 0.63. */
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
/** Fewer tokens say little. */
const fewestTokens = 16;
/** A share above this was measured against a limit that is wrong. */
const noise = 1.05;
/** With more that wants to run than this for each core, a run says what the others did. */
const busyLoad = 1.5;

/** Remembers what a generation reached. Nothing to remember: short ones, GPUs, machines that are busy or never measured. */
export async function rememberSpeed(
  info: Pick<ModelInfo, "weightType" | "weightBytes" | "backend">,
  timings: Timings,
): Promise<void> {
  const reached = timings.limits?.generation;
  if (!reached || timings.generatedTokens < fewestTokens) return;
  if (!(reached.fraction > 0 && reached.fraction <= noise)) return;
  if (info.backend.placement.some(({ isDevice }) => isDevice)) return;
  try {
    const platform = await currentPlatform();
    if ((platform.loadAverage() ?? 0) > busyLoad * platform.cores) return;
    const share = Math.min(1, reached.fraction);
    const { weightType: type, weightBytes: bytes } = info;
    const run: SpeedRecord = { type, bytes, share, at: new Date().toISOString() };
    const runs = [...(await readRuns(platform)), run].slice(-mostRuns);
    const file: SpeedFile = { cpu: platform.cpu(), cores: platform.cores, runs };
    await platform.smallFiles().write(SPEED_FILE, `${JSON.stringify(file)}\n`);
  } catch {
    // Nothing can be kept here: the next run says it again.
  }
}

/** What was remembered on this machine, oldest first. */
export async function rememberedSpeeds(): Promise<readonly SpeedRecord[]> {
  return await readRuns(await currentPlatform());
}

async function readRuns(platform: Platform): Promise<readonly SpeedRecord[]> {
  try {
    const text = await platform.smallFiles().read(SPEED_FILE);
    const { cpu, cores, runs } = JSON.parse(text ?? "{}") as Partial<SpeedFile>;
    // Another processor reaches another share.
    if (cpu !== platform.cpu() || cores !== platform.cores || !Array.isArray(runs)) return [];
    return runs.filter(
      (run) => typeof run?.type === "string" && run.bytes > 0 && run.share > 0 && run.share <= 1,
    );
  } catch {
    return [];
  }
}
