// The web app's files and the user's browser, for `lantern serve`. A folder is read into a table once, at start.
// Requests are looked up in that table and never reach the file system.

import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { extname, join } from "node:path";
import { byName } from "../base/by-name.ts";
import { embeddedFiles } from "./node-embedded.ts";
import { smallFilesFolder } from "./node-folders.ts";
import { ownFolder } from "./node-own-folder.ts";
import { homeFolder } from "./node-path-errors.ts";
import { makePrivateFolder, privateFileMode } from "./node-private.ts";

export interface AssetFile {
  bytes: Uint8Array<ArrayBuffer>;
  type: string;
  /** Whether its name changes with its content. */
  immutable: boolean;
}

const types: Readonly<Record<string, string>> = byName({
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".json": "application/json",
  ".webmanifest": "application/manifest+json",
  ".woff2": "font/woff2",
  ".mjs": "text/javascript; charset=utf-8",
  ".txt": "text/plain; charset=utf-8",
  ".md": "text/markdown; charset=utf-8",
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".gif": "image/gif",
  ".webp": "image/webp",
  ".wasm": "application/wasm",
  ".pdf": "application/pdf",
});

/** The content type of a file, by its name; undefined: the name says none. */
export const typeOfFile = (path: string): string | undefined => types[extname(path).toLowerCase()];

/** The built web app: from dist/web (of a checkout or the published package), or from inside the single-file program. */
export function webAssets(): Map<string, AssetFile> | undefined {
  const inside = embeddedFiles();
  if (!inside) return readAssets(join(ownFolder(), "dist", "web"));
  const names = inside.names().filter((name) => name.startsWith("web/"));
  const assets = new Map<string, AssetFile>();
  for (const name of names) addAsset(assets, name.slice("web".length), inside.bytes(name));
  return names.length > 0 ? assets : undefined;
}

/** Files by path, with "/" for index.html and "/worker" for worker.html; undefined if the app was not built. */
export function readAssets(folder: string): Map<string, AssetFile> | undefined {
  if (!existsSync(join(folder, "index.html"))) return undefined;
  const assets = new Map<string, AssetFile>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = join(entry.parentPath, entry.name);
    const path = `/${file.slice(folder.length).replaceAll("\\", "/").replace(/^\//, "")}`;
    addAsset(assets, path, new Uint8Array(readFileSync(file)));
  }
  return assets;
}

function addAsset(
  assets: Map<string, AssetFile>,
  path: string,
  bytes: Uint8Array<ArrayBuffer>,
): void {
  const type = typeOfFile(path);
  if (type === undefined) return;
  const immutable = /^\/(assets|threads)\//.test(path); // vite puts a hash into these names
  const page = path === "/index.html" ? "/" : path.replace(/\.html$/, "");
  assets.set(page, { bytes, type, immutable });
}

const redirectMs = 60_000;

const openers: Readonly<Record<string, readonly [string, ...string[]]>> = byName({
  darwin: ["open"],
  win32: ["cmd", "/c", "start", ""],
});

/**
 * Opens a page in the user's browser. A failure is ignored: the URL is printed anyway. Other users of the machine can see a
 * program's arguments, so a URL with a secret goes through a file that only this user can read.
 */
export function openInBrowser(url: string, hasSecret: boolean): void {
  const [program, ...args] = openers[process.platform] ?? ["xdg-open"];
  const place = hasSecret ? redirectFile(url) : url;
  if (place === undefined) return;
  const child = spawn(program, [...args, place], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
}

/** A page that redirects to the URL; removed when the browser has had time to read it. */
function redirectFile(url: string): string | undefined {
  const folder = smallFilesFolder(process.env, process.platform, homeFolder());
  const file = join(folder, `open-${process.pid}.html`);
  const remove = (): void => rmSync(file, { force: true });
  try {
    makePrivateFolder(folder);
    remove();
    const target = url.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
    const page = `<!doctype html><meta http-equiv="refresh" content="0; url=${target}"><title>Lantern</title>\n`;
    writeFileSync(file, page, { flag: "wx", mode: privateFileMode });
  } catch {
    return undefined;
  }
  process.once("exit", remove);
  setTimeout(remove, redirectMs).unref();
  return file;
}
