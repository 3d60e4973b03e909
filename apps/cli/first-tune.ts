// A quick tune at the first use of a weight type on this machine, stored for the next start. It delays no text and no end of a
// command: `chat` tunes while the user thinks, `serve` while it is idle, `run` never.

import { type Command, Option } from "commander";
import { pause } from "../../src/base/backoff.ts";
import { isDisturbed, othersCores } from "../../src/base/machine-load.ts";
import {
  AbortedError,
  type HeldType,
  isTunePostponed,
  postponeTune,
  rememberTune,
  tune,
  untunedTypes,
} from "../../src/index.ts";
import type { CliContext } from "./command.ts";
import { tuneFileOption } from "./flags.ts";
import type { IdleChore } from "./idle-work.ts";
import { locateModel } from "./load-model.ts";

export interface TuneFlag {
  /** false with --no-tune. */
  tune: boolean;
  /** --tune-file */
  tuneFile?: string;
  /** --weights: the types that the model is held in. */
  weights?: HeldType;
}

export function addTuneFlag(command: Command): Command {
  return command.addOption(noTuneOption()).addOption(tuneFileOption());
}

/** --no-tune */
export function noTuneOption(): Option {
  return new Option(
    "--no-tune",
    "do not tune the kernels for this model while the machine is idle (also: LANTERN_NO_TUNE=1)",
  );
}

/** --no-tune, LANTERN_NO_TUNE=1, or times that the user names. */
export function isTuneOff({ tune, tuneFile }: TuneFlag, { terminal }: CliContext): boolean {
  return !tune || tuneFile !== undefined || Boolean(terminal.env("LANTERN_NO_TUNE"));
}

/** How long the machine must be idle before it is tuned. */
const lookMs = 1000;

/** The tune as a chore for idle times, once for each weight type; `say` gets the reason if there was none. */
export function idleTune(
  name: string,
  flags: TuneFlag,
  context: CliContext,
  say?: (note: string) => void,
): IdleChore[] {
  if (isTuneOff(flags, context)) return [];
  return [
    async (signal) => {
      const note = await quickTune(name, flags, context, signal);
      if (note !== undefined) say?.(note);
    },
  ];
}

/** Returns a message for the user. */
async function quickTune(
  name: string,
  { weights }: TuneFlag,
  context: CliContext,
  signal: AbortSignal,
): Promise<string | undefined> {
  const model = await locateModel(name, context);
  const held = weights ? { weights } : {};
  const types = await untunedTypes(model, held);
  if (types.length === 0 || (await isTunePostponed())) return undefined;
  const { terminal } = context;
  const { cores } = terminal.machine();
  let before = terminal.load();
  const disturbance = async (): Promise<string | undefined> => {
    const others = othersCores(before, terminal.load());
    if (!isDisturbed(others, cores)) return undefined;
    await postponeTune();
    return `kernels were not tuned, because other programs used ${others.toFixed(1)} cores; the next try is in a day, "lantern tune --force" tunes now`;
  };
  await pause(lookMs, signal);
  if (signal.aborted) throw new AbortedError("tuning");
  const busy = await disturbance();
  if (busy !== undefined) return busy;
  before = terminal.load();
  const { file } = await tune({ model, ...held, mode: "quick", remember: false, signal });
  const disturbed = await disturbance();
  if (disturbed === undefined) await rememberTune(file);
  return disturbed;
}
