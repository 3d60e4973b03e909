// Gets the older Nodes that the tests of the package and of the launcher run on, into node_modules/.cache/nodes:
// node scripts/fetch-nodes.ts. They are no dependencies, since 100 MB each is a lot for whoever does not run these tests.

import { chmodSync, renameSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { CatalogEntry } from "../src/catalog/catalog.ts";
import { findLocally, pullEntry } from "../src/catalog/pull.ts";
import { nodeDownloadPlatform } from "../src/platform/node-download.ts";

interface TestedNode {
  version: string;
  /** Of bin/node in the npm package node-PLATFORM. */
  files: Readonly<Record<string, { bytes: number; sha256: string }>>;
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

const folder = fileURLToPath(new URL("../node_modules/.cache/nodes/", import.meta.url));
const platform = {
  ...nodeDownloadPlatform(),
  cacheFolder: folder,
  installedPackageFile: () => undefined,
};

for (const { version, files } of testedNodes) {
  const host = `${process.platform}-${process.arch}`;
  const file = files[host];
  if (!file) {
    console.log(`Node ${version}: not for ${host}`);
    continue;
  }
  const [major] = version.split(".");
  const source = { name: `node-${host}`, version, file: "bin/node", bytes: file.bytes };
  const entry: CatalogEntry = {
    name: `Node ${version}`,
    description: "",
    licence: "MIT",
    chat: false,
    ...file,
    file: `${major}/node`,
    source: { kind: "npm", packages: [source] },
  };
  if (await findLocally(entry, platform)) continue;
  const downloaded = `${major}/node.new`;
  const { path } = await pullEntry({ ...entry, file: downloaded }, platform);
  chmodSync(path, 0o755);
  renameSync(path, join(folder, `${major}`, "node"));
  console.log(`Node ${version}: ${entry.bytes} bytes`);
}
