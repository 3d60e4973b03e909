// The Node that the launcher downloads for itself: what has to be known and done around that file. Runs on Node 20, too.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";

/** A version that nobody started for so long is of an older Lantern. */
const unusedMs: number = 30 * 24 * 3600 * 1000;

/** Why a Node from nodejs.org cannot run on this system, where that is known beforehand. */
export function wrongSystem(): string | undefined {
  if (process.platform !== "linux") return undefined;
  const report = process.report as NodeJS.ProcessReport & { excludeNetwork?: boolean };
  report.excludeNetwork = true; // it would ask for names of addresses, which takes seconds
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return header?.glibcVersionRuntime === undefined
    ? "the one that could be downloaded needs glibc, which this system does not have"
    : undefined;
}

/** Makes a complete download the Node that is started from now on; a sentence: why it is not. */
export function putIntoUse(file: string, version: string, wanted: string): string | undefined {
  fs.chmodSync(file, 0o500);
  const { stdout, stderr, error } = spawnSync(file, ["--version"], { encoding: "utf8" });
  if (stdout?.trim() !== `v${version}`) {
    const said = error?.message ?? stderr.trim().split("\n")[0];
    return `the one that was downloaded does not run here (${said || "it said nothing"}); LANTERN_RUNTIME=off keeps Lantern from trying`;
  }
  fs.renameSync(file, wanted);
  removeUnused(path.dirname(wanted));
  return undefined;
}

function removeUnused(folder: string): void {
  for (const name of fs.readdirSync(folder)) {
    if (!/^node-v\d+\.\d+\.\d+-/.test(name)) continue; // not ours to remove
    const file = path.join(folder, name);
    const { mtimeMs = Date.now() } = fs.lstatSync(file, { throwIfNoEntry: false }) ?? {};
    if (Date.now() - mtimeMs > unusedMs) fs.rmSync(file, { force: true });
  }
}
