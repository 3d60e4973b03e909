// Where Lantern keeps things on this machine, in Node: the platform's cache folder, or what LANTERN_CACHE says. Pure
// functions, so that each platform's rule can be tested on any other.

import * as path from "node:path";

export type Environment = Readonly<Record<string, string | undefined>>;

/** Models. */
export function modelCacheFolder(env: Environment, platform: string, home: string): string {
  const { join } = platform === "win32" ? path.win32 : path.posix;
  return env.LANTERN_CACHE || join(userCacheFolder(env, platform, home), "models");
}

/** What is remembered besides models: measurements. LANTERN_CACHE holds both. */
export function smallFilesFolder(env: Environment, platform: string, home: string): string {
  return env.LANTERN_CACHE || userCacheFolder(env, platform, home);
}

/** Machine code that was made here, for this user alone: a folder of its own, because of its permissions. */
export function nativeCodeFolder(env: Environment, platform: string, home: string): string {
  const { join } = platform === "win32" ? path.win32 : path.posix;
  return join(smallFilesFolder(env, platform, home), "native");
}

/** What the user made and nobody can download again: conversations. LANTERN_DATA names another folder. */
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

/** The folders that nobody but Lantern chose: theirs are its to give a mode. One that the user named is not among them. */
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
  // The XDG specification says that a relative path here is to be ignored.
  const xdg = env.XDG_CACHE_HOME?.startsWith("/") ? env.XDG_CACHE_HOME : join(home, ".cache");
  return join(xdg, "lantern");
}
