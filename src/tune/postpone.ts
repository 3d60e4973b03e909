// The time of the next attempt to tune, after other programs disturbed one: a machine that is busy now is often busy all day, and
// each try costs half a minute of its cores. Stored, so that it holds for the next start, too.

import { currentPlatform } from "../platform/current.ts";

const POSTPONE_FILE = "tune-postponed.json";
const dayMs: number = 24 * 60 * 60 * 1000;

/** Says that a try was disturbed just now. Where it cannot be stored, it is forgotten with the process. */
export async function postponeTune(now: Date = new Date()): Promise<void> {
  const platform = await currentPlatform();
  const text = `${JSON.stringify({ disturbed_at: now.toISOString() })}\n`;
  await platform
    .smallFiles()
    .write(POSTPONE_FILE, text)
    .catch(() => {});
}

/** Whether the last disturbed try was less than a day ago. */
export async function isTunePostponed(now: Date = new Date()): Promise<boolean> {
  return (await tunePostponedUntil(now)) !== undefined;
}

/** When the next try may be; undefined: now. */
export async function tunePostponedUntil(now: Date = new Date()): Promise<Date | undefined> {
  try {
    const platform = await currentPlatform();
    const text = await platform.smallFiles().read(POSTPONE_FILE);
    const { disturbed_at: at } = JSON.parse(text ?? "{}") as { disturbed_at?: unknown };
    const disturbed = Date.parse(String(at));
    const passedMs = now.getTime() - disturbed;
    const isRecent = passedMs >= 0 && passedMs < dayMs; // of a clock that was set back: not
    return isRecent ? new Date(disturbed + dayMs) : undefined;
  } catch {
    return undefined; // it cannot be read: then it says nothing
  }
}
