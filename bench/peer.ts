// Finds packages of other engines. They are no dependencies of the project (their binaries weigh hundreds of megabytes): they are looked for
// beside the project, then in the folder that LANTERN_PEERS names.

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { SourceError } from "../src/base/errors.ts";

/** The path of a module of such a package; a SourceError that says how to install it where it is not there. */
export function locatePeer(module: string, installed: string): string {
  for (const folder of [fileURLToPath(new URL("..", import.meta.url)), process.env.LANTERN_PEERS]) {
    if (!folder) continue;
    try {
      return createRequire(join(resolve(folder), "package.json")).resolve(module);
    } catch {
      // Not in this one.
    }
  }
  throw new SourceError(
    `bench: ${installed} is neither installed in the project nor in the folder of LANTERN_PEERS. Install it anywhere: npm i --prefix DIR ${installed}, then start this again with LANTERN_PEERS=DIR`,
  );
}
