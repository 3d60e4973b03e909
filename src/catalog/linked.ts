// Models elsewhere on this machine that were opened in the web app: a list of paths in the cache folder. The files
// stay where they are; removing one from the list deletes nothing.

import type { DownloadPlatform } from "../platform/download.ts";

const fileName = "linked-models.json";

/** Paths, in the order in which they were added. */
export async function linkedPaths(platform: DownloadPlatform): Promise<string[]> {
  const text = await platform.readText(place(platform)).catch(() => undefined);
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(found) ? found.filter((path) => typeof path === "string") : [];
  } catch {
    return []; // the list is damaged: its models can be added again
  }
}

export async function linkPath(path: string, platform: DownloadPlatform): Promise<void> {
  const paths = await linkedPaths(platform);
  if (!paths.includes(path)) await write([...paths, path], platform);
}

export async function forgetPath(path: string, platform: DownloadPlatform): Promise<void> {
  const paths = await linkedPaths(platform);
  await write(
    paths.filter((one) => one !== path),
    platform,
  );
}

async function write(paths: readonly string[], platform: DownloadPlatform): Promise<void> {
  await platform.makeFolder(platform.cacheFolder);
  await platform.writeText(place(platform), `${JSON.stringify(paths, null, 2)}\n`);
}

function place(platform: DownloadPlatform): string {
  return platform.join(platform.cacheFolder, fileName);
}
