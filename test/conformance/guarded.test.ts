// The conformance table in guard mode: no kernel leaves its buffers. WebAssembly and the interpreter name the kernel
// that does; machine code crashes, so it runs in child processes, and the case and kernel that crashed are named.
// Held against: the reference, and kernels that the test has made wrong.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { cases, skipReason } from "./table.ts";
import { cpuTargets, guardedName, nativeTargetsElsewhere } from "./targets.ts";

const child = fileURLToPath(new URL("guarded-child.ts", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "lantern-guarded-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** What a child said that ended badly, with the case and the kernel it was at; undefined: it ended well. */
async function failureOf(target: string): Promise<string | undefined> {
  const notes = join(folder, target.replaceAll(" ", "-"));
  const running = spawn(process.execPath, ["--no-warnings", child, notes, target], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [running.stdout, running.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
  }
  const { promise, resolve } = Promise.withResolvers<string | number | null>();
  running.once("close", (code, signal) => resolve(signal ?? code));
  const ended = await promise;
  if (ended === 0 && said.endsWith("done\n")) return undefined;
  const last = said.split("\n").findLast((line) => line.startsWith("case "));
  return `${last} ended with ${ended} in ${readFileSync(notes, "utf8").trim()}\n${said.slice(-2000)}`;
}

for (const { name, lacks } of [...cpuTargets, { name: "interpreted", lacks: undefined }]) {
  const left = cases.filter((each) => skipReason(guardedName(name), each) !== undefined);
  if (lacks !== undefined) test.skip(`${name} [skipped: ${lacks}]`, () => {});
  else {
    test(name, { timeout: 300_000 }, async () => {
      expect(await failureOf(name)).toBeUndefined();
    });
  }
  for (const each of left) {
    test.skip(`${name}: ${each.name} [skipped: ${skipReason(guardedName(name), each)}]`, () => {});
  }
}

test.skip.each(nativeTargetsElsewhere)("%s", () => {});
