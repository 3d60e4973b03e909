// A quick tune at the first use of a weight type on this machine, stored for the next start. It never delays a text:
// `run` tunes afterwards, with a progress bar that Ctrl-C ends, `chat` while the user thinks, `serve` while it is
// idle.

import { type Command, Option } from "commander";
import {
  AbortedError,
  type HeldType,
  LanternError,
  rememberTune,
  tune,
  untunedTypes,
} from "../index.ts";
import { isDisturbed, othersCores } from "./bench/machine-load.ts";
import type { CliContext } from "./command.ts";
import { tuneFileOption } from "./flags.ts";
import type { IdleChore } from "./idle-work.ts";
import { locateModel } from "./load-model.ts";
import { noteTo } from "./machine-limits.ts";
import { ShareBar } from "./progress.ts";

export interface TuneFlag {
  /** false with --no-tune. */
  tune: boolean;
  /** --tune-file */
  tuneFile?: string;
  /** --weights: the types that the model is held in. */
  weights?: HeldType;
}

export function addTuneFlag(command: Command): Command {
  return command
    .addOption(
      new Option(
        "--no-tune",
        "do not tune the kernels for this model on first use (also: LANTERN_NO_TUNE=1)",
      ),
    )
    .addOption(tuneFileOption());
}

/** Whether a user is watching and did not disable it. */
function isWanted({ tune: wanted, tuneFile }: TuneFlag, { terminal }: CliContext): boolean {
  return (
    wanted && tuneFile === undefined && terminal.errIsTerminal && !terminal.env("LANTERN_NO_TUNE")
  );
}

/** After a text: a few seconds, once. A failure is not an error. */
export async function tuneOnce(name: string, flags: TuneFlag, context: CliContext): Promise<void> {
  if (!isWanted(flags, context)) return;
  const { terminal } = context;
  const controller = new AbortController();
  const stopListening = terminal.onInterrupt(() => controller.abort());
  const bar = new ShareBar(terminal, "tuning, once (Ctrl-C skips)");
  try {
    const draw = (share: number, now: string) => bar.update(share, now);
    const note = await quickTune(name, flags, context, controller.signal, draw);
    bar.done();
    if (note) noteTo(context)(note);
  } catch (error) {
    bar.done();
    if (!(error instanceof LanternError)) throw error;
    const skipped = error instanceof AbortedError;
    noteTo(context)(
      skipped
        ? 'skipped; "lantern tune" does it later, --no-tune turns this off'
        : `kernels could not be tuned: ${error.message}`,
    );
  } finally {
    stopListening();
    bar.done();
  }
}

/** Returns a message for the user. */
async function quickTune(
  name: string,
  { weights }: TuneFlag,
  context: CliContext,
  signal: AbortSignal,
  onProgress?: (share: number, now: string) => void,
): Promise<string | undefined> {
  const model = await locateModel(name, context);
  const held = weights ? { weights } : {};
  const types = await untunedTypes(model, held);
  if (types.length === 0) return undefined;
  const { terminal } = context;
  const before = terminal.load();
  const remember = false;
  const { file } = await tune({
    model,
    ...held,
    mode: "quick",
    remember,
    signal,
    ...(onProgress && { onProgress }),
  });
  const others = othersCores(before, terminal.load());
  if (isDisturbed(others, terminal.machine().cores)) {
    return `kernels were not tuned, because other programs used ${others.toFixed(1)} cores; the next start tries again, "lantern tune --force" tunes now`;
  }
  await rememberTune(file);
  return undefined;
}

/** The same silently, for idle times; `watched`: only if a user is at a terminal. */
export function idleTune(
  name: string,
  flags: TuneFlag,
  context: CliContext,
  watched: boolean,
): IdleChore[] {
  const { terminal } = context;
  const isOff = !flags.tune || flags.tuneFile !== undefined || terminal.env("LANTERN_NO_TUNE");
  if (isOff || (watched && !terminal.errIsTerminal)) return [];
  return [
    async (signal) => {
      const note = await quickTune(name, flags, context, signal);
      if (note && !watched) terminal.err(`lantern: ${note}\n`);
    },
  ];
}
