// How long a model takes to load, beside reading its file: each measured in processes of their own, in turns.
//
//   npm run bench:load -- MODEL.gguf ... [-t 2] [-r 5] [--cold] [--json]
//
//   open   open(), from the call until the model can be used
//   read   the file is read into memory as large as the file, with as many reads at a time as there are threads, and nothing
//          else is done with it
//   pass   the same through buffers of 4 MiB, which stay in the caches: a pass over the file that keeps nothing
//
// The file is in the system's cache, unless --cold: then the cache is dropped before every run, which needs the right to
// write to /proc/sys/vm/drop_caches. Every process has Node's compile cache, as the command line has. Prints medians and the
// ratio of open to read, with the load average: on a busy machine, all three take longer, but not equally.

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { open as openFile } from "node:fs/promises";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { open } from "../src/index.ts";

const BUFFER_BYTES = 4 << 20;

interface Run {
  ms: number;
  bytes: number;
  /** CPU time of all threads, in ms. */
  user: number;
  system: number;
}

type Kind = "open" | "read" | "pass";

/** What is measured; returns the bytes that were read, and what ends it. */
type Measured = (
  path: string,
  threads: number,
) => Promise<{ bytes: number; end?(): Promise<void> }>;

const kinds: Readonly<Record<Kind, Measured>> = {
  open: async (path, threads) => {
    const model = await open(path, { threads, backend: "cpu" });
    return { bytes: 0, end: () => model.dispose() };
  },
  read: (path, threads) => readWhole(path, threads, (bytes) => memoryOf(bytes)),
  pass: (path, threads) => readWhole(path, threads, () => undefined),
};

function memoryOf(bytes: number): Uint8Array {
  const count = Math.ceil(bytes / 65536);
  if (count <= 65536) {
    const narrow = { initial: count, maximum: count, shared: true };
    return new Uint8Array(new WebAssembly.Memory(narrow).buffer);
  }
  const pages = BigInt(count);
  const wide = { address: "i64", initial: pages, maximum: pages, shared: true };
  // TypeScript does not know 64-bit memories yet.
  const memory = new WebAssembly.Memory(wide as unknown as WebAssembly.MemoryDescriptor);
  return new Uint8Array(memory.buffer);
}

/** Reads a file with `threads` reads at a time, into the memory or, without one, into a buffer for each. */
async function readWhole(
  path: string,
  threads: number,
  makeMemory: (bytes: number) => Uint8Array | undefined,
): Promise<{ bytes: number }> {
  const file = await openFile(path);
  const { size } = await file.stat();
  const memory = makeMemory(size);
  let next = 0;
  const reader = async (): Promise<void> => {
    const own = memory ? undefined : new Uint8Array(BUFFER_BYTES);
    while (next < size) {
      const at = next;
      const length = Math.min(BUFFER_BYTES, size - at);
      next += length;
      const target = memory?.subarray(at, at + length) ?? own!;
      for (let done = 0; done < length; ) {
        const { bytesRead } = await file.read(target, done, length - done, at + done);
        if (bytesRead === 0) throw new Error(`${path} ends at byte ${at + done}`);
        done += bytesRead;
      }
    }
  };
  await Promise.all(Array.from({ length: threads }, reader));
  await file.close();
  return { bytes: size };
}

/** One run, in a process of its own. */
function measure(kind: Kind, path: string, threads: number, isCold: boolean): Run {
  if (isCold) writeFileSync("/proc/sys/vm/drop_caches", "3");
  const cache = join(tmpdir(), `lantern-bench-load-${process.pid}`);
  const out = execFileSync(
    process.execPath,
    ["--no-warnings", import.meta.filename, "--child", kind, "-t", String(threads), path],
    {
      encoding: "utf8",
      env: { NODE_COMPILE_CACHE: cache, UV_THREADPOOL_SIZE: String(threads), ...process.env },
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  return JSON.parse(out) as Run;
}

async function child(kind: Kind, path: string, threads: number): Promise<void> {
  const before = process.cpuUsage();
  const started = performance.now();
  const { bytes, end } = await kinds[kind](path, threads);
  const ms = performance.now() - started;
  const { user, system } = process.cpuUsage(before);
  await end?.(); // threads that end by themselves also fill the compile cache
  const run: Run = { ms, bytes, user: user / 1000, system: system / 1000 };
  process.stdout.write(JSON.stringify(run));
}

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

function compare(path: string, threads: number, rounds: number, isCold: boolean, isJson: boolean) {
  const order: readonly Kind[] = ["open", "read", "pass"];
  const runs: Record<Kind, Run[]> = { open: [], read: [], pass: [] };
  const loads: number[] = [];
  measure("open", path, threads, false); // fills the compile cache
  for (let round = 0; round < rounds; round++) {
    loads.push(loadavg()[0]!);
    for (const kind of round % 2 === 0 ? order : order.toReversed()) {
      runs[kind].push(measure(kind, path, threads, isCold));
    }
  }
  const middle = (kind: Kind, of: (run: Run) => number) => Math.round(median(runs[kind].map(of)));
  const ratios = runs.open.map(({ ms }, round) => ms / runs.read[round]!.ms);
  const facts = {
    model: path.split("/").at(-1),
    bytes: runs.read[0]!.bytes,
    threads,
    cold: isCold,
    rounds,
    load_average: [Math.min(...loads), Math.max(...loads)],
    open_ms: middle("open", ({ ms }) => ms),
    read_ms: middle("read", ({ ms }) => ms),
    pass_ms: middle("pass", ({ ms }) => ms),
    open_cpu_ms: middle("open", ({ user, system }) => user + system),
    read_cpu_ms: middle("read", ({ user, system }) => user + system),
    ratio: Number(median(ratios).toFixed(2)),
  };
  if (isJson) return void console.log(JSON.stringify(facts));
  const s = (ms: number): string => `${(ms / 1000).toFixed(2)} s`;
  const [least, most] = facts.load_average.map((load) => load.toFixed(1));
  console.log(
    `${facts.model}, ${(facts.bytes / 1e9).toFixed(2)} GB, ${threads} threads, ${isCold ? "cold" : "in the page cache"}: ` +
      `open ${s(facts.open_ms)} (CPU ${s(facts.open_cpu_ms)}), read ${s(facts.read_ms)} (CPU ${s(facts.read_cpu_ms)}), ` +
      `pass ${s(facts.pass_ms)}; open/read ${facts.ratio.toFixed(2)}, medians of ${rounds}, load average ${least}-${most}`,
  );
}

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", short: "t", default: String(availableParallelism()) },
    rounds: { type: "string", short: "r", default: "5" },
    cold: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    child: { type: "string" },
  },
});
const threads = Number(flags.threads);
const rounds = Number(flags.rounds);
const isWrong = [threads, rounds].some((count) => !(Number.isInteger(count) && count > 0));
if (positionals.length === 0 || isWrong) {
  console.error(
    "usage: npm run bench:load -- MODEL.gguf ... [-t THREADS] [-r ROUNDS] [--cold] [--json]",
  );
  process.exit(2);
}
if (flags.child) await child(flags.child as Kind, positionals[0]!, threads);
else for (const path of positionals) compare(path, threads, rounds, flags.cold, flags.json);
