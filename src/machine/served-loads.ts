// The results of `lantern bench serve` on this machine, stored by model: `lantern limits --users` and the Limits page
// show them beside the limits. A composition root like speeds.ts, and like there a file that cannot be read is no error.

import { LanternError, SourceError } from "../base/errors.ts";
import type { MeasuredLoad } from "../limits/serving-report.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";

/** Properties that identify a model: names alone are not unique. */
export interface ServedModel {
  readonly name: string;
  readonly storedBytes: number;
  /** Bits of the KV cache. */
  readonly kvBits: number;
}

interface StoredLoad extends MeasuredLoad {
  readonly model: ServedModel;
}

interface ServingFile {
  readonly cpu: string;
  readonly cores: number;
  readonly loads: readonly StoredLoad[];
}

const SERVING_FILE = "serving.json";
/** The most loads of all models together; the oldest are dropped. */
const mostLoads = 300;

/** Stores results; each replaces the one of the same model, lengths and users. Rejects if nothing can be stored. */
export async function storeServedLoads(
  model: ServedModel,
  measured: readonly MeasuredLoad[],
): Promise<void> {
  const platform = await currentPlatform();
  const fresh = measured.map((load): StoredLoad => ({ model, ...load }));
  const kept = (await readLoads(platform)).filter(
    (old) => !fresh.some((load) => isSameCase(old, load)),
  );
  const loads = [...kept, ...fresh].slice(-mostLoads);
  const file: ServingFile = { cpu: platform.cpu(), cores: platform.cores, loads };
  const files = platform.smallFiles();
  try {
    await files.write(SERVING_FILE, `${JSON.stringify(file)}\n`);
  } catch (error) {
    if (error instanceof LanternError) throw error;
    throw new SourceError(
      `bench serve: the results could not be stored in ${files.place(SERVING_FILE)}`,
      { cause: error },
    );
  }
}

/** The results of a model on this machine, by lengths and users. */
export async function storedServedLoads(model: ServedModel): Promise<readonly MeasuredLoad[]> {
  const loads = await readLoads(await currentPlatform());
  return loads
    .filter((load) => isSameModel(load.model, model))
    .map(({ model: _, ...load }) => load)
    .sort(
      (a, b) =>
        a.promptTokens - b.promptTokens || a.answerTokens - b.answerTokens || a.users - b.users,
    );
}

function isSameCase(a: StoredLoad, b: StoredLoad): boolean {
  return (
    isSameModel(a.model, b.model) &&
    a.promptTokens === b.promptTokens &&
    a.answerTokens === b.answerTokens &&
    a.users === b.users
  );
}

function isSameModel(a: ServedModel, b: ServedModel): boolean {
  return a.name === b.name && a.storedBytes === b.storedBytes && a.kvBits === b.kvBits;
}

async function readLoads(platform: Platform): Promise<readonly StoredLoad[]> {
  try {
    const text = await platform.smallFiles().read(SERVING_FILE);
    const { cpu, cores, loads } = JSON.parse(text ?? "{}") as Partial<ServingFile>;
    // Another processor serves other numbers of users.
    if (cpu !== platform.cpu() || cores !== platform.cores || !Array.isArray(loads)) return [];
    return loads.filter(isLoad);
  } catch {
    return [];
  }
}

const counts = ["users", "promptTokens", "answerTokens"] as const;
const amounts = ["firstP50Ms", "firstP99Ms", "slowest", "median", "tokensPerSecond"] as const;

function isLoad(load: Partial<StoredLoad> | null): load is StoredLoad {
  if (typeof load?.model?.name !== "string" || typeof load.at !== "string") return false;
  const isAmount = (value: unknown): boolean =>
    typeof value === "number" && Number.isFinite(value) && value > 0;
  return (
    isAmount(load.model.storedBytes) &&
    isAmount(load.model.kvBits) &&
    amounts.every((name) => isAmount(load[name])) &&
    counts.every((name) => isAmount(load[name]) && Number.isSafeInteger(load[name])) &&
    load.answerTokens! >= 2
  );
}
