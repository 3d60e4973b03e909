// The Node that the launcher downloads for itself: checks of the system, and putting the download into use. Runs on
// Node 20, too.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";

/** A version that was not started for this long belongs to an older Lantern. */
const unusedMs: number = 30 * 24 * 3600 * 1000;

/** The reason why a Node from nodejs.org cannot run on this system; undefined if it can, or if that is unknown. */
export function wrongSystem(): string | undefined {
  if (process.platform !== "linux") return undefined;
  const report = process.report as NodeJS.ProcessReport & { excludeNetwork?: boolean };
  report.excludeNetwork = true; // it would resolve host names, which takes seconds
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return header?.glibcVersionRuntime === undefined
    ? "the one that could be downloaded needs glibc, which this system does not have"
    : undefined;
}

/** Makes a complete download the Node that is started from now on; returns a sentence if that fails. */
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
