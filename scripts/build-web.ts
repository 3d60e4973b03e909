// Builds the web app into dist/web; with --if-stale only if a source is newer than the last build. `npm start` runs it
// first, so that the app is always built from the current sources.

import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const built = join(root, "dist", "web", "index.html");

/** The sources of the bundle: the app, and src/, most of which is in the page that computes for a cluster. */
const sources = ["apps/web", "src"];

function newest(folder: string): number {
  return Math.max(
    0,
    ...readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => statSync(join(entry.parentPath, entry.name)).mtimeMs),
  );
}

function isFresh(): boolean {
  if (!existsSync(built)) return false;
  const builtAt = statSync(built).mtimeMs;
  return sources.every((folder) => newest(folder) <= builtAt);
}

async function buildWeb(): Promise<void> {
  // import() alone would take a vite of any folder above, which another user may have made.
  const isInstalled = existsSync(join(root, "node_modules", "vite", "package.json"));
  const vite = isInstalled ? await import("vite").catch(() => undefined) : undefined;
  if (!vite) {
    console.error("The web app is not built: vite is a development dependency and not installed.");
    return;
  }
  await vite.build({ configFile: join(root, "apps", "web", "vite.config.ts"), logLevel: "warn" });
}

if (!(process.argv.includes("--if-stale") && isFresh())) await buildWeb();
