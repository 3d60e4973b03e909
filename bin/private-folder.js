// Folders of Lantern's cache that hold executable code: the compiled modules, the Node that was downloaded. No other
// user may be able to write there, so a folder is used only if it is this user's, closed to others (0700), and below
// folders that no other user can change. Plain JavaScript that an old Node can parse, like the launcher.

"use strict";

// biome-ignore-start lint/style/useNodejsImportProtocol: Node before 12.20 does not know "node:"
const { existsSync, lstatSync, mkdirSync, realpathSync, statSync } = require("fs");
const { homedir } = require("os");
const { dirname, isAbsolute, join } = require("path");

// biome-ignore-end lint/style/useNodejsImportProtocol: see above

/** The same folder as smallFilesFolder of src/platform/node-folders.ts, which this Node may be too old to load. */
function cacheFolder(env, platform, home) {
  if (env.LANTERN_CACHE) return env.LANTERN_CACHE;
  if (platform === "win32") {
    return join(env.LOCALAPPDATA || join(home, "AppData", "Local"), "lantern");
  }
  if (platform === "darwin") return join(home, "Library", "Caches", "lantern");
  const xdg = env.XDG_CACHE_HOME || "";
  return join(isAbsolute(xdg) ? xdg : join(home, ".cache"), "lantern");
}

/** A folder of Lantern's cache, made if need be: its path, or the reason against it. */
function privateFolder(name) {
  let folder = `a folder "${name}"`;
  try {
    // Throws if HOME is not set and the system does not know this user.
    folder = join(cacheFolder(process.env, process.platform, homedir()), name);
    if (!isAbsolute(folder) && !process.env.LANTERN_CACHE)
      return { refused: `${folder} is not a whole path: check HOME` };
    makeFolders(folder);
    const wrong = process.getuid ? wrongFolder(folder, process.getuid()) : undefined;
    // Without links: a link on the way may be another user's, who could change its target after this check.
    return wrong === undefined ? { path: realpathSync(folder) } : { refused: wrong };
  } catch (error) {
    return { refused: `nothing can be kept in ${folder} (${error.message})` };
  }
}

/** Makes a folder and those above it. Node's own `recursive` never returns if the system denies that the new folder is there (/proc). */
function makeFolders(folder) {
  if (existsSync(folder)) return;
  if (dirname(folder) !== folder) makeFolders(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if (error.code !== "EEXIST") throw error; // another process made it
  }
}

/** The reason against the folder; undefined: only this user (and root) can change its contents. */
function wrongFolder(folder, uid) {
  const own = lstatSync(folder);
  if (!own.isDirectory()) return `${folder} is not a folder`;
  if (own.uid !== uid) return `${folder} belongs to another user (${own.uid}, not ${uid})`;
  if ((own.mode & 0o077) !== 0) {
    return `${folder} is open to others (mode ${octal(own.mode)}, expected 700): chmod 700, or remove it`;
  }
  for (let above = dirname(realpathSync(folder)); ; above = dirname(above)) {
    const facts = statSync(above);
    if (facts.uid !== 0 && facts.uid !== uid) {
      return `${above} belongs to another user (${facts.uid}), and ${folder} is in it`;
    }
    // In a folder like /tmp (sticky) all users may write, but not rename another's files.
    if ((facts.mode & 0o022) !== 0 && (facts.mode & 0o1000) === 0) {
      return `others may replace what is in ${above} (mode ${octal(facts.mode)}), and ${folder} is in it`;
    }
    if (above === dirname(above)) return undefined;
  }
}

function octal(mode) {
  return (mode & 0o7777).toString(8);
}

exports.cacheFolder = cacheFolder;
exports.privateFolder = privateFolder;
