// Fuzzes the code that reads untrusted bytes, and saves its findings:
//
//   npm run fuzz -- gguf|adapter|safetensors|tokenizer|template|http|shapes|grammar|grammar-cost|all [--seconds 60] [--seed 1] [--runs N] [--json]
//
// A finding is an error that is not a LanternError, a hang, too much memory, or a crash. It is minimized and saved in
// test/fuzz/regressions/, where test/fuzz/regressions.test.ts fails until it is fixed. The same seed and corpus give
// the same inputs. Inputs with new outcomes are kept in .fuzz/ (not in git) and used in the next run; --keep copies a
// few of them into test/fuzz/corpus/, which is in git.

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { minimise } from "../test/fuzz/minimise.ts";
import { type FuzzOrder, type FuzzResult, fuzz, tryInput } from "../test/fuzz/runner.ts";
import type { Finding, FuzzTarget, Json } from "../test/fuzz/target.ts";
import { fuzzTargets } from "../test/fuzz/targets/table.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const regressionFolder = join(root, "test/fuzz/regressions");
/** The most inputs of a target in git, and on this machine. */
const maxCorpus = { git: 24, local: 400 };

const usage = `usage: npm run fuzz -- TARGET... [flags]

targets
  all            every one of them
TARGETS
flags
  --seconds N    how long each target runs (default 60)
  --runs N       or how many executions
  --seed S       another seed, other inputs (default 1)
  --parallel N   targets that run at a time (default: this machine's cores)
  --keep         add what was learned to test/fuzz/corpus
  --json         the results as JSON`;

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: "string", default: "60" },
    runs: { type: "string" },
    seed: { type: "string", default: "1" },
    parallel: { type: "string", default: String(availableParallelism()) },
    keep: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  },
});

if (flags.help || positionals.length === 0) {
  console.log(usage.replace("TARGETS", await targetList()));
  process.exit(flags.help ? 0 : 2);
}

const names = positionals.includes("all") ? [...fuzzTargets.keys()] : positionals;
const unknown = names.filter((name) => !fuzzTargets.has(name));
if (unknown.length > 0) {
  fail(`unknown target "${unknown[0]}". Known: all, ${[...fuzzTargets.keys()].join(", ")}`);
}
const seconds = positive("--seconds", flags.seconds);
const seed = positive("--seed", flags.seed);
const runs = flags.runs === undefined ? undefined : positive("--runs", flags.runs);

const results: FuzzResult[] = [];
const waiting = [...names];
await Promise.all(
  Array.from(
    { length: Math.min(positive("--parallel", flags.parallel), names.length) },
    async () => {
      for (let name = waiting.shift(); name; name = waiting.shift()) results.push(await one(name));
    },
  ),
);
if (flags.json) console.log(JSON.stringify(results, null, 2));
process.exitCode = results.some(({ findings }) => findings.length > 0) ? 1 : 0;

async function one(name: string): Promise<FuzzResult> {
  const module = fileURLToPath(fuzzTargets.get(name)!);
  const { limitMs } = await targetOf(name);
  const order: FuzzOrder = {
    name,
    module,
    seed,
    seconds,
    corpus: [...readInputs(corpusFolder(name)), ...readInputs(localFolder(name))],
    ...(runs !== undefined && { runs }),
    ...(limitMs !== undefined && { limitMs }),
  };
  const result = await fuzz(order);
  keep(name, result.kept);
  for (const finding of result.findings) {
    if (finding.kind !== "throw") finding.input = await smallest(order, finding);
    const file = saveFinding(finding);
    if (!flags.json) console.log(findingText(finding, file));
  }
  if (!flags.json) console.log(summary(result));
  return result;
}

/** Minimizes a finding. A hang or a crash costs a process per try, so there are few tries. */
async function smallest(order: FuzzOrder, finding: Finding): Promise<Json> {
  const stillFails = async (candidate: Json): Promise<boolean> =>
    (await tryInput(order, finding.seed, candidate))?.shape === finding.shape;
  return await minimise(finding.input, stillFails, { tries: 40, seconds: 120 });
}

function summary({ name, executions, seconds: took, outcomes, findings }: FuzzResult): string {
  const rate = (executions / took).toFixed(executions / took < 10 ? 1 : 0);
  return `${name}: ${executions} executions in ${took.toFixed(0)} s (${rate}/s), ${outcomes.length} new outcomes, ${findings.length} findings, seed ${seed}`;
}

function findingText({ target, kind, message, input }: Finding, file: string): string {
  return `\n${target}: ${kind}: ${message}\n  input ${JSON.stringify(input).slice(0, 600)}\n  saved as ${file}\n`;
}

function saveFinding({ target, kind, message, seed: found, input, shape }: Finding): string {
  mkdirSync(regressionFolder, { recursive: true });
  const name = `${target}-${hash(shape)}.json`;
  const [words] = message.split("\n");
  const text = JSON.stringify({ target, kind, found: words, seed: found, input }, null, 2);
  writeFileSync(join(regressionFolder, name), `${text}\n`);
  return `test/fuzz/regressions/${name}`;
}

function keep(name: string, inputs: readonly Json[]): void {
  save(localFolder(name), inputs, maxCorpus.local);
  if (flags.keep) save(corpusFolder(name), inputs.toSorted(bySize), maxCorpus.git);
}

function bySize(a: Json, b: Json): number {
  return JSON.stringify(a).length - JSON.stringify(b).length;
}

function save(folder: string, inputs: readonly Json[], most: number): void {
  mkdirSync(folder, { recursive: true });
  const room = most - readdirSync(folder).length;
  for (const input of inputs.slice(0, Math.max(room, 0))) {
    const text = JSON.stringify(input);
    writeFileSync(join(folder, `${hash(text)}.json`), `${text}\n`);
  }
}

function readInputs(folder: string): Json[] {
  try {
    return readdirSync(folder)
      .toSorted()
      .map((file) => JSON.parse(readFileSync(join(folder, file), "utf8")) as Json);
  } catch {
    return []; // none yet
  }
}

function corpusFolder(name: string): string {
  return join(root, "test/fuzz/corpus", name);
}

function localFolder(name: string): string {
  return join(root, ".fuzz", name);
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}

async function targetOf(name: string): Promise<FuzzTarget> {
  const { target } = (await import(fuzzTargets.get(name)!.href)) as { target: FuzzTarget };
  return target;
}

async function targetList(): Promise<string> {
  const lines: string[] = [];
  for (const name of fuzzTargets.keys()) {
    lines.push(`  ${name.padEnd(14)} ${(await targetOf(name)).describe}`);
  }
  return `${lines.join("\n")}\n`;
}

function positive(flag: string, text: string): number {
  const number = Number(text);
  if (Number.isInteger(number) && number > 0) return number;
  return fail(`${flag}: got "${text}", expected a whole number above 0`);
}

function fail(message: string): never {
  console.error(`fuzz: ${message}`);
  process.exit(2);
}
