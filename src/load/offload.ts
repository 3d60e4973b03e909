// Op offload: a GPU computes the prompts of layers on the processor, with weights that it gets for each batch (llama.cpp's op
// offload). The least number of tokens is measured once for a model on this machine, when it is loaded, and stored.

import type { Backend } from "../backends/backend.ts";
import {
  type Crossover,
  measureCrossover,
  msOf,
  type SizeTime,
} from "../backends/switch/crossover.ts";
import { SwitchBackend } from "../backends/switch/switch.ts";
import type { BackendRequest } from "../backends/table.ts";
import { type GpuFacts, gpuIdentity } from "../backends/webgpu/device.ts";
import { UsageError } from "../base/errors.ts";
import type { Platform, SmallFiles } from "../platform/platform.ts";

/** Demanded, or forbidden; undefined: where it was measured to be clearly faster. */
export type OffloadWish = boolean | undefined;

/** If it is demanded, batches of at least this many tokens are offloaded, as in llama.cpp. */
const DEMANDED_TOKENS = 32;

const FILE = "offload.json";
const VERSION = 1;
const MOST_RUNS = 100;

interface StoredRun {
  readonly key: string;
  /** null: the processor is faster. */
  readonly fewest: number | null;
  readonly host: readonly SizeTime[];
  readonly device: readonly SizeTime[];
}

/** The facts that the times depend on: the model, the processor with its kernels, the GPU, the layers on each side. */
export interface OffloadKey {
  readonly model: string;
  readonly cpu: string;
  readonly threads: number;
  readonly kernels: string;
  readonly layers: number | string;
}

/** Why there is no offload, before anything is tried; undefined: there may be. */
export function whyNoOffload(
  wish: OffloadWish,
  facts: GpuFacts,
  request: Pick<BackendRequest, "exact" | "files">,
  hasOverrides: boolean,
): string | undefined {
  if (wish === false) return "it was switched off";
  if (request.exact) return "exact kernels keep their weights in GPU memory";
  if (hasOverrides) return "tensors are placed by name";
  if (!request.files?.openDirect) return "the model does not lie in local files";
  if (wish === undefined && facts.isSoftware) return "this adapter computes on the processor";
  return undefined;
}

/** The error of a wish that cannot be had. */
export function noOffload(why: string): UsageError {
  return new UsageError(`opOffload: got true, but ${why}. Leave one of the two out`);
}

/** A host with prompts that a device may compute. */
export interface Offload {
  readonly backend: SwitchBackend;
  /** Decides the least number of tokens, once all weights are there. */
  decide(check: () => void | Promise<void>): Promise<void>;
}

export function offloading(
  sides: { readonly host: Backend; readonly device: Backend },
  wish: OffloadWish,
  facts: GpuFacts,
  key: OffloadKey,
  platform: Pick<Platform, "smallFiles" | "now">,
): Offload {
  const backend = new SwitchBackend({
    ...sides,
    choice: { prompt: 1, generation: 0, fewest: wish ? DEMANDED_TOKENS : Number.POSITIVE_INFINITY },
    helps: wish ? "demanded" : "if it can",
    notes: wish ? [`demanded: prompts of ${DEMANDED_TOKENS} tokens and more`] : [],
  });
  const name = JSON.stringify({ ...key, gpu: gpuIdentity(facts), driver: facts.driver });
  return {
    backend,
    async decide(check) {
      const { apart } = backend;
      if (wish || !apart) return;
      const files = platform.smallFiles();
      const known = (await stored(files)).find((run) => run.key === name);
      const found: Crossover = known
        ? { ...known, fewest: known.fewest ?? undefined }
        : await measureCrossover(apart, platform.now, check);
      if (!known) await store(files, { ...found, key: name, fewest: found.fewest ?? null });
      const how = `${known ? "measured earlier" : "measured"}: ${timesText(found)}`;
      if (found.fewest === undefined) backend.forgo(`the GPU is not clearly faster (${how})`);
      else backend.helpFrom(found.fewest, [`prompts of ${found.fewest} tokens and more (${how})`]);
    },
  };
}

/** "512 tokens 1,020 ms here and 430 there". */
function timesText({ host, device }: Pick<Crossover, "host" | "device">): string {
  if (host.length === 0) return "no batch is large enough";
  const text = (ms: number): string =>
    ms < 10 ? ms.toFixed(1) : Math.round(ms).toLocaleString("en");
  return device
    .map(({ tokens, ms }) => {
      const about = tokens > host.at(-1)!.tokens ? "about " : "";
      return `${tokens} tokens ${about}${text(msOf(host, tokens))} ms on the processor and ${text(ms)} on the GPU`;
    })
    .join(", ");
}

/** Whether a record says that there is no gain: then no device is opened for it. */
export async function knownUseless(
  facts: GpuFacts,
  key: OffloadKey,
  { smallFiles }: Pick<Platform, "smallFiles">,
): Promise<string | undefined> {
  const name = JSON.stringify({ ...key, gpu: gpuIdentity(facts), driver: facts.driver });
  const known = (await stored(smallFiles())).find((run) => run.key === name);
  if (!known || known.fewest !== null) return undefined;
  return `the GPU is not clearly faster (measured earlier: ${timesText(known)})`;
}

async function stored(files: SmallFiles): Promise<readonly StoredRun[]> {
  try {
    const { version, runs } = JSON.parse((await files.read(FILE)) ?? "{}");
    return version === VERSION && Array.isArray(runs) ? runs.filter(isRun) : [];
  } catch {
    return [];
  }
}

async function store(files: SmallFiles, run: StoredRun): Promise<void> {
  try {
    const others = (await stored(files)).filter(({ key }) => key !== run.key);
    const runs = [...others, run].slice(-MOST_RUNS);
    await files.write(FILE, `${JSON.stringify({ version: VERSION, runs })}\n`);
  } catch {
    // It cannot be stored: the next load measures again.
  }
}

function isRun(run: Partial<StoredRun> | undefined): boolean {
  const isTimes = (times: unknown) =>
    Array.isArray(times) && times.every(({ tokens, ms } = {}) => tokens > 0 && ms >= 0);
  const isCount = run?.fewest === null || (Number.isInteger(run?.fewest) && run!.fewest! > 0);
  return typeof run?.key === "string" && isCount && isTimes(run.host) && isTimes(run.device);
}
