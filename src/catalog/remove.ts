// Deletes a model from the cache folder: all its files, the rest of an interrupted download, and folders that are then
// empty. Deletes only files that listModels() found; a linked model is forgotten, and its file stays.

import { SourceError, UsageError } from "../base/errors.ts";
import { nearest } from "../base/nearest.ts";
import type { DownloadPlatform } from "../platform/download.ts";
import { readBareName, readHubName } from "./hub-name.ts";
import { forgetPath } from "./linked.ts";
import { listModels, type ModelListing, otherNames } from "./list.ts";
import { runningServers } from "./servers.ts";

export interface RemovedModel {
  name: string;
  /** "forgotten": its file is elsewhere and was not deleted. */
  how: "deleted" | "forgotten";
  /** Paths of the deleted files, and the bytes that were freed. */
  files: string[];
  bytes: number;
}

/** The removable model of that name; an error says why there is none. */
export async function findRemovable(
  name: string,
  platform: DownloadPlatform,
): Promise<ModelListing> {
  const listings = await listModels(platform);
  const wanted = namesFor(name, platform);
  const found = listings.filter((listing) =>
    [listing.name, ...otherNames(listing)].some((one) => wanted.has(one.toLowerCase())),
  );
  const here = found.filter(isHere);
  if (here.length > 1) {
    const names = here.map((listing) => listing.name).join(", ");
    throw new UsageError(`rm: "${name}" can mean ${names}. Name one of them`);
  }
  const [only] = here;
  if (!only && found.length > 0) {
    throw new SourceError(
      `rm: ${found[0]!.name} is not on this machine, so there is nothing to delete`,
    );
  }
  if (!only) {
    const known = listings.filter(isHere).map((listing) => listing.name);
    const near = nearest(name, known);
    const hint = near.length > 0 ? `Did you mean ${near.join(" or ")}?` : "";
    throw new UsageError(
      `rm: there is no model "${name}" on this machine. ${hint || '"lantern models" lists the models that are'}`,
    );
  }
  if (only.state === "installed" && only.diskBytes === 0) {
    throw new UsageError(
      `rm: ${only.name} is part of Lantern's installation and cannot be deleted by itself`,
    );
  }
  return only;
}

/** A damaged file under a model's name still takes disk space. */
function isHere({ state, diskBytes }: ModelListing): boolean {
  return state !== "absent" || diskBytes > 0;
}

/**
 * Deletes (or forgets) a model. Refuses while a server on this machine has it loaded, or while it is being downloaded.
 */
export async function removeModel(name: string, platform: DownloadPlatform): Promise<RemovedModel> {
  const listing = await findRemovable(name, platform);
  await checkUnused(listing, platform);
  if (listing.state === "linked") {
    await forgetPath(listing.path!, platform);
    return { name: listing.name, how: "forgotten", files: [], bytes: 0 };
  }
  const paths = listing.files.map((file) =>
    platform.join(platform.cacheFolder, ...file.split("/")),
  );
  await checkNotDownloading(listing, paths, platform);
  for (const path of paths) {
    await platform.remove(path);
    if (path.endsWith(".part")) await platform.remove(`${path}.json`);
  }
  await removeEmptyFolders(listing.files, platform);
  return { name: listing.name, how: "deleted", files: paths, bytes: listing.diskBytes };
}

function namesFor(name: string, platform: DownloadPlatform): Set<string> {
  const wanted = name.trim();
  const hub = readHubName(wanted, platform.env("HF_ENDPOINT")) ?? readBareName(wanted);
  const names = [wanted];
  if (hub?.file !== undefined) names.push(`hf:${hub.repo}/${hub.file}`);
  else if (hub?.quantization !== undefined) names.push(`hf:${hub.repo}:${hub.quantization}`);
  else if (hub) names.push(`hf:${hub.repo}`);
  return new Set(names.map((one) => one.toLowerCase()));
}

async function checkUnused(listing: ModelListing, platform: DownloadPlatform): Promise<void> {
  if (listing.path === undefined) return;
  const path = platform.absolute(listing.path);
  for (const server of await runningServers(platform)) {
    const user = server.models.find((model) => platform.absolute(model.path) === path);
    if (!user) continue;
    const own = server.processId === platform.processId;
    throw new SourceError(
      own
        ? `rm: ${listing.name} is loaded. Unload it first`
        : `rm: ${listing.name} is loaded by the server at ${server.url} (process ${server.processId}). Unload it there or stop that server first`,
    );
  }
}

/** A pull holds a lock beside the file. Taking the lock shows that no pull runs, and keeps others out meanwhile. */
async function checkNotDownloading(
  listing: ModelListing,
  paths: readonly string[],
  platform: DownloadPlatform,
): Promise<void> {
  const wholes = new Set(paths.map((path) => path.replace(/\.part$/, "")));
  for (const path of wholes) {
    const lock = await platform.lock(`${path}.lock`);
    if (!("release" in lock)) {
      throw new SourceError(
        `rm: ${listing.name} is being downloaded by process ${lock.pid}, since ${lock.since}. Stop the download first`,
      );
    }
    await lock.release();
  }
}

async function removeEmptyFolders(
  files: readonly string[],
  platform: DownloadPlatform,
): Promise<void> {
  const folders = new Set<string>();
  for (const file of files) {
    const parts = file.split("/").slice(0, -1);
    for (let depth = parts.length; depth > 0; depth--) {
      folders.add(parts.slice(0, depth).join("/"));
    }
  }
  const deepestFirst = [...folders].sort((a, b) => b.split("/").length - a.split("/").length);
  for (const folder of deepestFirst) {
    await platform.removeEmptyFolder(platform.join(platform.cacheFolder, ...folder.split("/")));
  }
}
