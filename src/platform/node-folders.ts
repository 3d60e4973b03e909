// Lantern's folders in Node: the platform's cache and data folders, or LANTERN_CACHE and LANTERN_DATA. Pure functions, so that each
// platform's rule can be tested on any other.

import * as path from "node:path";

export type Environment = Readonly<Record<string, string | undefined>>;

/** Folder for models. */
export function modelCacheFolder(env: Environment, platform: string, home: string): string {
  const { join } = platform === "win32" ? path.win32 : path.posix;
  return env.LANTERN_CACHE || join(userCacheFolder(env, platform, home), "models");
}

/** Folder for small files besides models: measurements. LANTERN_CACHE holds both. */
export function smallFilesFolder(env: Environment, platform: string, home: string): string {
  return env.LANTERN_CACHE || userCacheFolder(env, platform, home);
}

/** Folder for generated machine code, for this user only: separate because of its permissions. */
export function nativeCodeFolder(env: Environment, platform: string, home: string): string {
  const { join } = platform === "win32" ? path.win32 : path.posix;
  return join(smallFilesFolder(env, platform, home), "native");
}

/** Folder for user data that cannot be downloaded again: conversations. LANTERN_DATA names another folder. */
export function dataFolder(env: Environment, platform: string, home: string): string {
  const { join } = platform === "win32" ? path.win32 : path.posix;
  if (env.LANTERN_DATA) return env.LANTERN_DATA;
  if (platform === "win32") {
    return join(env.LOCALAPPDATA ?? join(home, "AppData", "Local"), "lantern", "data");
  }
  if (platform === "darwin") return join(home, "Library", "Application Support", "lantern");
  const xdg = env.XDG_DATA_HOME?.startsWith("/") ? env.XDG_DATA_HOME : join(home, ".local/share");
  return join(xdg, "lantern");
}

/** The folders that Lantern chose itself: it may change their modes. A folder that the user named is not among them. */
export function ownFolders(env: Environment, platform: string, home: string): string[] {
  return [
    ...(env.LANTERN_CACHE ? [] : [userCacheFolder(env, platform, home)]),
    ...(env.LANTERN_DATA ? [] : [dataFolder(env, platform, home)]),
  ];
}

function userCacheFolder(env: Environment, platform: string, home: string): string {
  const { join } = platform === "win32" ? path.win32 : path.posix;
  if (platform === "win32") {
    return join(env.LOCALAPPDATA ?? join(home, "AppData", "Local"), "lantern");
  }
  if (platform === "darwin") return join(home, "Library", "Caches", "lantern");
  // The XDG specification says to ignore a relative path.
  const xdg = env.XDG_CACHE_HOME?.startsWith("/") ? env.XDG_CACHE_HOME : join(home, ".cache");
  return join(xdg, "lantern");
}
