// Downloads the Node version that Lantern runs best on, for bin/lantern.js on an older one: from the registry that npm
// is configured with, into Lantern's cache, checked by the SHA-256 pinned in bin/runtimes.json. It runs on Node 20 and
// newer, so it loads little: no engine, no commands.

import { messageOf } from "../../src/base/errors.ts";
import type { CatalogEntry } from "../../src/catalog/catalog.ts";
import { pullEntry } from "../../src/catalog/pull.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import { nodeTerminal, type Terminal } from "../../src/platform/node-cli.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { putIntoUse, wrongSystem } from "../../src/platform/node-runtime.ts";
import { ProgressBar } from "./progress.ts";
import { bytesText } from "./text.ts";

/** A line of bin/runtimes.json. */
export interface PinnedRuntime {
  version: string;
  /** The file's name in the cache. */
  name: string;
  package: string;
  /** Path inside the package. */
  file: string;
  bytes: number;
  packedBytes: number;
  sha256: string;
}

/** Exactly one of these is set. */
export interface FetchedRuntime {
  path?: string;
  /** Ctrl-C. */
  stopped?: true;
  /** The reason why there is none: the end of a sentence. */
  failed?: string;
}

export async function fetchRuntime(
  pinned: PinnedRuntime,
  folder: string,
  terminal: Terminal = nodeTerminal(),
  downloads: DownloadPlatform = nodeDownloadPlatform(),
): Promise<FetchedRuntime> {
  const failed = wrongSystem();
  if (failed !== undefined) return { failed };
  terminal.err(
    `Lantern runs fastest on Node.js ${pinned.version}. Downloading it once (${bytesText(pinned.packedBytes)}) to ${folder}; LANTERN_RUNTIME=off prevents that\n`,
  );
  const bar = new ProgressBar(terminal, { label: `Node.js ${pinned.version}`, plainLines: true });
  const stop = new AbortController();
  const ignoreInterrupts = terminal.onInterrupt(() => stop.abort());
  try {
    const platform = { ...downloads, cacheFolder: folder, installedPackageFile: () => undefined };
    const pulled = await pullEntry(entryOf(pinned), platform, {
      signal: stop.signal,
      onProgress: ({ loadedBytes, totalBytes }) => bar.update(loadedBytes, totalBytes),
    });
    const path = downloads.join(folder, pinned.name);
    const problem = putIntoUse(pulled.path, pinned.version, path);
    if (problem === undefined) return { path };
    await downloads.remove(pulled.path);
    return { failed: problem };
  } catch (error) {
    if (stop.signal.aborted) return { stopped: true };
    return { failed: messageOf(error) };
  } finally {
    bar.done();
    ignoreInterrupts();
  }
}

/** A catalog entry of the runtime, so that pull.ts resumes, checks and renames. It gets its final name after it has run once. */
function entryOf({ name, version, package: packageName, file, bytes, sha256 }: PinnedRuntime) {
  const entry: CatalogEntry = {
    name: `Node.js ${version}`,
    description: "the Node that Lantern runs best on",
    licence: "MIT",
    bytes,
    sha256,
    chat: false,
    file: `new-${name}`,
    source: { kind: "npm", packages: [{ name: packageName, version, file, bytes }] },
  };
  return entry;
}
