// Other Nodes than the one that runs the tests: the machine's own, and those that scripts/fetch-test-files.ts has put into
// node_modules/.cache (as .ci/run does). Tests run on each that is there, and say which are not.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

export interface OtherNode {
  /** For titles: "Node 22.23.3". */
  readonly name: string;
  readonly major: number;
  readonly path: string;
}

export const fetchedNodes: string = fileURLToPath(
  new URL("../../node_modules/.cache/nodes/", import.meta.url),
);

const program = process.platform === "win32" ? "node.exe" : "node";

function nodeAt(path: string): OtherNode | undefined {
  if (!existsSync(path)) return undefined;
  const said = spawnSync(path, ["--version"], { encoding: "utf8" }).stdout ?? "";
  const version = /^v((\d+)\.\d+\.\d+)/.exec(said);
  return version ? { name: `Node ${version[1]}`, major: Number(version[2]), path } : undefined;
}

/** A Node of this major version; undefined: none is here. */
export function fetchedNode(major: number): OtherNode | undefined {
  return nodeAt(join(fetchedNodes, String(major), program));
}

/** The first Node on PATH, outside node_modules, that is older than the one that runs this. */
export function systemNode(): OtherNode | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter);
  for (const folder of folders.filter((each) => each && !each.includes("node_modules"))) {
    const node = nodeAt(join(folder, program));
    if (node && node.major >= 20 && node.major < 26) return node;
  }
  return undefined;
}

/** For a title: why there is nothing to run it on. */
export const noSuchNode =
  "[skipped: not here; node scripts/fetch-test-files.ts gets it from the npm registry]";
