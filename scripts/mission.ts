// Runs the command of every row of docs/mission.md on small models and prints row, command, and the line that shows it:
//
//   npm run mission [-- ROW...] [--markdown]
//
// Rows that need a GPU are skipped if there is none, with the reason; --markdown prints a table with date and machine. The exit code is
// 1 if a command failed or did not print its line.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gpuInfo } from "../src/index.ts";
import { printTuneFile } from "../src/tune/tune-file.ts";
import { reluFile } from "../test/support/relu-file.ts";
import { tinyGguf } from "../test/support/tiny-file.ts";
import { tinyFolder } from "../test/tools/tiny-folder.ts";
import { sampleFile } from "../test/tune/sample.ts";
import { type MissionFiles, type MissionRow, missionRows } from "./mission-rows.ts";

export interface Outcome {
  readonly command: string;
  /** The line that shows it, or the reason why there is none. */
  readonly line: string;
  readonly state: "ok" | "failed" | "skipped";
}

const bin = fileURLToPath(new URL("../bin/lantern.js", import.meta.url));
const mostMs = 240_000;

/** In a folder of their own, under `root`, with a cache folder for the files of the commands. */
export async function missionFiles(root: string): Promise<MissionFiles & { cache: string }> {
  const path = (name: string) => join(root, name);
  for (const name of ["folder", "out", "cache"]) mkdirSync(path(name));
  writeFileSync(path("tiny.gguf"), await tinyGguf());
  writeFileSync(path("relu.gguf"), await tinyGguf(reluFile()));
  for (const [name, bytes] of Object.entries(tinyFolder())) {
    writeFileSync(join(path("folder"), name), bytes);
  }
  const sentence = "Once upon a time there was a little girl who loved to sing in the garden. ";
  writeFileSync(path("text.txt"), sentence.repeat(20));
  writeFileSync(path("sample-tune.txt"), printTuneFile(sampleFile));
  return {
    tiny: path("tiny.gguf"),
    relu: path("relu.gguf"),
    folder: path("folder"),
    text: path("text.txt"),
    tune: path("sample-tune.txt"),
    out: path("out"),
    cache: path("cache"),
  };
}

export async function runRow(
  row: MissionRow,
  files: MissionFiles & { cache: string },
): Promise<Outcome> {
  const args = row.command(files);
  const short = (said: string) => said.replaceAll(join(files.out, ".."), ".");
  const command = `lantern ${short(args)}`;
  if (row.instead) {
    const { test, title } = row.instead;
    return { command, line: `takes minutes; ${test} shows it: "${title}"`, state: "skipped" };
  }
  if (row.gpu) {
    const gpu = await gpuInfo();
    if (typeof gpu === "string") return { command, line: gpu, state: "skipped" };
  }
  const before = row.before?.(files);
  if (before !== undefined)
    await output({ ...row, ask: undefined }, before.split(" "), files.cache);
  const { code, text } = await output(row, args.split(" "), files.cache);
  const line = row.shows.exec(short(text))?.[0].trim();
  if (code === 0 && line !== undefined) return { command, line, state: "ok" };
  const said = text.trim().split("\n").slice(-3).join(" / ");
  return {
    command,
    line: `exit code ${code}, no line like ${row.shows}: ${said}`,
    state: "failed",
  };
}

/** The output of both streams; for a server, its answer. */
async function output(
  row: Pick<MissionRow, "measures"> & { ask?: MissionRow["ask"] | undefined },
  args: readonly string[],
  cache: string,
): Promise<{ code: number | null; text: string }> {
  const env = {
    ...process.env,
    LANTERN_CACHE: cache,
    LANTERN_DATA: cache,
    LANTERN_NO_LIMIT: row.measures ? "" : "1",
  };
  const child = spawn(process.execPath, [bin, ...args], {
    env,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: mostMs,
  });
  let text = "";
  let answer: Promise<string> | undefined;
  const onText = (chunk: Buffer): void => {
    text += chunk.toString();
    const url = /served at (\S+)/.exec(text)?.[1];
    if (!row.ask || url === undefined || answer) return;
    answer = row.ask(url).finally(() => child.kill("SIGINT"));
    answer.catch(() => undefined); // awaited below, when the server has ended
  };
  child.stdout.on("data", onText);
  child.stderr.on("data", onText);
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
  return { code, text: answer ? await answer : text };
}

async function main(): Promise<void> {
  const asked = process.argv.slice(2).filter((word) => !word.startsWith("--"));
  const isMarkdown = process.argv.includes("--markdown");
  const rows = missionRows.filter(({ row }) => asked.length === 0 || asked.includes(row));
  const root = mkdtempSync(join(tmpdir(), "lantern-mission-"));
  const machine = `${cpus()[0]?.model.trim() ?? "unknown"}, ${cpus().length} cores`;
  const date = new Date().toISOString().slice(0, 10);
  const counts = { ok: 0, failed: 0, skipped: 0 };
  try {
    const files = await missionFiles(root);
    if (isMarkdown) {
      console.log(`| row | command | what it printed, ${date}, ${machine} |\n|---|---|---|`);
    }
    for (const row of rows) {
      const { command, line, state } = await runRow(row, files);
      counts[state]++;
      const shown = line.replaceAll(/\s+/g, " ");
      if (isMarkdown) {
        const how = state === "ok" ? "" : `${state}: `;
        console.log(`| ${row.row} | \`${command}\` | ${how}${shown.replaceAll("|", "\\|")} |`);
      } else console.log(`${row.row}  ${state.padEnd(7)}  ${command}\n      ${shown}`);
    }
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
  const { ok, failed, skipped } = counts;
  if (!isMarkdown) {
    console.log(`\n${ok} ok, ${failed} failed, ${skipped} skipped, ${date}, ${machine}`);
  }
  process.exitCode = failed > 0 ? 1 : 0;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await main();
