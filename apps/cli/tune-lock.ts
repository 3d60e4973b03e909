// The lock of the background tune (background-tune.ts), which any command removes when it opens a model.

import type { CliContext } from "./command.ts";

export type WithFiles = Pick<CliContext, "downloads">;

/** A file in the cache folder. */
export function placeInCache(name: string, { downloads }: WithFiles): string {
  return downloads.join(downloads.cacheFolder, name);
}

/** Has the process id of its owner. */
export function tuneLock(context: WithFiles): string {
  return placeInCache("tune-background.lock", context);
}

/** Ends a background tune: a model is opened, which needs the cores. The tune finds its lock gone and stores nothing more. */
export async function endBackgroundTune(context: WithFiles): Promise<void> {
  await context.downloads.remove(tuneLock(context)).catch(() => {});
}
