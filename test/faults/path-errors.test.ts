// Every command with paths that do not work, as an ordinary user meets them: what may not be read or written, links in a
// circle, names that are too long, folders in place of files, a cache that cannot be used, no home folder. Always a sentence
// with the path and the right exit code, never a stack; what can be done without the path is done.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { tinyGguf } from "../support/tiny-file.ts";
import type { PathRun, PathRunResult } from "./path-errors-process.ts";

const windows = process.platform === "win32";
const skipped = windows ? " [skipped: Windows has other rights and links]" : "";
const folder = fs.mkdtempSync(path.join(tmpdir(), "lantern-paths-"));
const at = (...names: string[]): string => path.join(folder, ...names);
const long = "x".repeat(300);
const model = at("tiny.gguf");
const out = at("home", "out.gguf");

/** What is in the way, and what must be said about it. */
const situations = {
  locked: [at("locked.gguf"), "permission denied"],
  "in a locked folder": [at("locked", "tiny.gguf"), "permission denied"],
  "a link to itself": [at("loop"), "links lead in a circle"],
  "a long name": [at(`${long}.gguf`), "the name is too long"],
  "below a file": [at("tiny.gguf", "x.gguf"), "no (such )?file or folder|is a file"],
} as const;

const models: readonly string[][] = [
  ["run", "-m", "PATH", "-p", "a"],
  ["chat", "-m", "PATH"],
  ["serve", "-m", "PATH", "--port", "0"],
  ["inspect", "PATH"],
  ["tokenize", "-m", "PATH", "a"],
  ["logits", "-m", "PATH", "-p", "a"],
  ["bench", "-m", "PATH"],
  ["limits", "PATH"],
  ["perplexity", "-m", "PATH", "-f", at("text.txt")],
  ["quantize", "PATH", out, "q8_0"],
  ["convert", "PATH", out],
  ["imatrix", "-m", "PATH", "-f", at("text.txt"), "-o", out],
  ["verify", "-m", "PATH"],
  ["tune", "-m", "PATH"],
];
const inputs: readonly string[][] = [
  ["run", "-m", model, "-f", "PATH"],
  ["serve", "-m", model, "--chat-template-file", "PATH"],
  ["limits", model, "--measured", "PATH"],
  ["tune", "analyze", "PATH"],
  ["quantize", model, out, "q8_0", "--imatrix", "PATH"],
];
const outputs: readonly string[][] = [
  ["quantize", model, "PATH", "q8_0"],
  ["imatrix", "-m", model, "-f", at("text.txt"), "-o", "PATH"],
];
const cached: readonly string[][] = [
  ["models"],
  ["pull", "tinyllama-chat"],
  ["rm", "tinyllama-chat", "-y"],
  ["run", "-m", "tinyllama-chat", "-p", "a"],
];

const usual = {
  HOME: at("home"),
  LANTERN_CACHE: at("home", "cache"),
  LANTERN_DATA: at("home", "data"),
  HF_ENDPOINT: "http://127.0.0.1:1",
  npm_config_registry: "http://127.0.0.1:1",
};

interface Expected extends PathRun {
  title: string;
  code: number;
  says: RegExp;
}

const runs: Expected[] = [];

function expectRun(title: string, args: readonly string[], file: string, rest: Partial<Expected>) {
  const named = args.map((arg) => (arg === "PATH" ? file : arg));
  const run = { env: usual, code: 3, says: /./, ...rest };
  runs.push({
    title: `${title}: lantern ${args.join(" ").replaceAll(folder, ".")}`,
    ...run,
    args: named,
  });
}

// Two situations for each command, all of them in turn: the way to a path is the same for all commands.
for (const [kind, all] of [
  ["model", models],
  ["input", inputs],
] as const) {
  for (const [index, args] of all.entries()) {
    for (const more of [0, 1]) {
      const entries = Object.entries(situations);
      const [title, [file, says]] = entries[(2 * index + more) % entries.length]!;
      expectRun(`${kind} ${title}`, args, file, { says: new RegExp(says) });
    }
  }
}
for (const args of inputs.slice(0, 4)) {
  expectRun("input a folder", args, at("empty"), { says: /it is a folder, expected a file/ });
}
for (const args of outputs) {
  const says = (text: string) => ({ says: new RegExp(`"[^"]+".*${text}`) });
  expectRun(
    "output in a folder of another's",
    args,
    at("readable", "out"),
    says("permission denied"),
  );
  expectRun("output in a locked folder", args, at("locked", "out"), says("permission denied"));
  expectRun("output a link to itself", args, at("loop"), says("lead in a circle"));
  expectRun("output a long name", args, at("home", long), says("the name is too long"));
}
for (const [title, cache, says] of [
  ["locked", at("locked"), "permission denied"],
  ["a link to itself", at("loop"), "lead in a circle"],
  ["a long name", at(long), "the name is too long"],
] as const) {
  const rest = {
    env: { ...usual, LANTERN_CACHE: cache },
    says: new RegExp(`${says}.*LANTERN_CACHE`),
  };
  for (const args of cached) expectRun(`cache ${title}`, args, "", rest);
}
const [, pull] = cached;
for (const [title, cache, says] of [
  ["another's", at("readable", "cache"), "cannot make the folder.*permission denied"],
  ["a file", model, "cannot make the folder.*there already"],
  ["below a file", at("tiny.gguf", "x"), "cannot make the folder.*is a file, expected a folder"],
] as const) {
  const rest = { env: { ...usual, LANTERN_CACHE: cache }, says: new RegExp(says) };
  expectRun(`cache ${title}`, pull!, "", rest);
}
const { LANTERN_CACHE: _, LANTERN_DATA: __, ...withoutPlaces } = usual;
const noHome = { env: { ...withoutPlaces, HOME: "" } };
expectRun("no home folder", pull!, "", {
  ...noHome,
  says: /no home folder. Set HOME, or LANTERN_CACHE/,
});
expectRun("no home folder", ["models"], "", { ...noHome, code: 0, says: /^$/ });
expectRun("no home folder", ["ps"], "", { ...noHome, code: 0 });
const locked = { env: { ...usual, LANTERN_CACHE: at("locked"), LANTERN_DATA: at("locked") } };
const serve = ["serve", "-m", model, "--port", "0", "--no-web"];
for (const env of [locked, noHome]) {
  const says = /conversations are not saved: database: cannot open/;
  expectRun("nowhere to keep anything", serve, "", { ...env, code: 0, says });
}

describe.skipIf(windows)(`paths that do not work${skipped}`, () => {
  let results: PathRunResult[];
  beforeAll(async () => {
    await arrange();
    const list = at("runs.json");
    fs.writeFileSync(list, JSON.stringify(runs.map(({ args, env }) => ({ args, env }))));
    const script = fileURLToPath(new URL("./path-errors-process.ts", import.meta.url));
    const { stdout, stderr } = spawnSync(process.execPath, ["--no-warnings", script, list], {
      encoding: "utf8",
      maxBuffer: 1 << 28,
    });
    expect(stderr).toBe("");
    results = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as PathRunResult);
  });
  afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

  test.each(runs.map((run, index) => ({ ...run, index })))("$title", ({ index, code, says }) => {
    const { err, code: got } = results[index]!;
    expect(err).not.toMatch(/[Tt]his is a bug|^ +at /m);
    expect(err).toMatch(says);
    expect(got).toBe(code);
  });
});

async function arrange(): Promise<void> {
  fs.chmodSync(folder, 0o755);
  const bytes = await tinyGguf();
  fs.writeFileSync(model, bytes);
  fs.writeFileSync(at("text.txt"), "the cat sat ".repeat(300));
  fs.writeFileSync(at("locked.gguf"), bytes, { mode: 0 });
  for (const name of ["home", "empty", "readable", "locked"]) fs.mkdirSync(at(name));
  fs.chmodSync(at("home"), 0o777);
  fs.writeFileSync(at("locked", "tiny.gguf"), bytes);
  fs.symlinkSync("loop", at("loop"));
  fs.chmodSync(at("readable"), 0o555);
  fs.chmodSync(at("locked"), process.getuid!() === 0 ? 0o700 : 0);
}
