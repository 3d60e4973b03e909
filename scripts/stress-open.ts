// Opens a model, generates a few tokens and disposes it, many times in one process, and prints the process's resources:
// resident memory, JavaScript heap, external memory, threads, file descriptors and memory mappings. A leak grows with
// the cycles. It ends with a comparison of the first hundred cycles with the last, and exits with 1 if threads,
// descriptors or mappings have grown.
//
//   npm run stress:open [-- MODEL] [--cycles 1000] [--every 100] [--threads N] [--level 2|3|4] [--gpu]
//
// MODEL is anything that open() takes; the default is a tiny random model. Linux only: the numbers come from /proc.

import { parseArgs } from "node:util";
import { open } from "../src/index.ts";
import { type Held, held, openCycle, settled } from "../test/support/open-cycles.ts";
import { tinyFile } from "../test/support/tiny-file.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    cycles: { type: "string", default: "1000" },
    every: { type: "string", default: "100" },
    threads: { type: "string", default: "2" },
    level: { type: "string" },
    gpu: { type: "boolean", default: false },
  },
});
const cycles = Number(values.cycles);
const every = Number(values.every);
const options = {
  contextSize: 256,
  threads: Number(values.threads),
  ...(values.level !== undefined && { level: Number(values.level) as 2 | 3 | 4 }),
  ...(values.gpu && { backend: "webgpu" }),
};

const file = positionals[0] === undefined ? await tinyFile({ feedForward: 4096 }) : undefined;
const model = positionals[0] ?? file!.path;
const started = performance.now();
const seen: Held[] = [];
console.log(`${"cycle".padStart(6)} ${columns().join(" ")}`);
for (let cycle = 1; cycle <= cycles; cycle++) {
  await openCycle(() => open(model, options));
  if (cycle % every !== 0 && cycle !== 1) continue;
  const now = await settled();
  if (cycle > 1) seen.push(now);
  console.log(`${String(cycle).padStart(6)} ${row(now).join(" ")}`);
}
file?.remove();
const [first, last] = [seen[0], seen.at(-1)];
if (first && last) {
  const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
  const seconds = ((performance.now() - started) / 1000).toFixed(0);
  console.log(
    `${cycles} cycles, ${seconds} s: resident ${mib(first.resident)} -> ${mib(last.resident)} MiB, ` +
      `threads ${first.threads} -> ${last.threads}, descriptors ${first.descriptors} -> ${last.descriptors}, ` +
      `mappings ${first.mappings} -> ${last.mappings}`,
  );
  const grown = (["threads", "descriptors"] as const).filter((key) => last[key] > first[key]);
  // The allocator's own mappings vary; one mapping per cycle would be a leak.
  if (last.mappings - first.mappings > cycles / 10) process.exitCode = 1;
  if (grown.length > 0) process.exitCode = 1;
}

function columns(): string[] {
  return Object.keys(held()).map((name) => name.padStart(11));
}

function row(now: Held): string[] {
  return Object.entries(now).map(([name, value]) => {
    const isBytes = !["threads", "descriptors", "mappings"].includes(name);
    return (isBytes ? `${(value / 2 ** 20).toFixed(1)}M` : `${value}`).padStart(11);
  });
}
