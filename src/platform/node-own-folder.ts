// The folder that Lantern lies in: where its package.json is. Sources and the published files are two folders below it, the
// bundles of a checkout (scripts/checkout-bundle.js) further down.

import { existsSync } from "node:fs";
import * as path from "node:path";
import { fileURLToPath } from "node:url";

let known: string | undefined;

/** In the single-file program there is none: ask node-embedded.ts first. */
export function ownFolder(): string {
  if (known !== undefined) return known;
  let folder = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
  do folder = path.dirname(folder);
  while (!existsSync(path.join(folder, "package.json")) && folder !== path.dirname(folder));
  known = folder;
  return folder;
}
