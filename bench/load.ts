// How long a model takes to load, beside reading its file: each measured in processes of their own, in turns.
//
//   npm run bench:load -- MODEL.gguf ... [-t 2] [-r 5] [--cold]
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
import { availableParallelism, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { measure, median, medianRatio } from "../src/base/measure.ts";
import { open } from "../src/index.ts";
import { bench, count, isOn, load, text, timed, type Values } from "./harness.ts";

const BUFFER_BYTES = 4 << 20;

const flags = {
  threads: count(availableParallelism(), "t"),
  rounds: count(5, "r"),
  cold: isOn,
  /** Started by this program itself. */
  child: text(),
};

/** What is measured; returns the bytes that were read, and what ends it. */
type Kind = (path: string, threads: number) => Promise<{ bytes: number; end?(): Promise<void> }>;

const kinds: Readonly<Record<string, Kind>> = {
  open: async (path, threads) => {
    const model = await open(path, { threads, backend: "cpu" });
    return { bytes: 0, end: () => model.dispose() };
  },
  read: (path, threads) => readWhole(path, threads, memoryOf),
  pass: (path, threads) => readWhole(path, threads, () => undefined),
};

await bench("npm run bench:load --", "MODEL.gguf ...", flags, async (given, paths) => {
  if (given.child !== undefined) await child(given.child, paths[0]!, given.threads);
  else for (const path of paths) await compare(path, given);
});

function memoryOf(bytes: number): Uint8Array {
  const pages = Math.ceil(bytes / 65536);
  if (pages <= 65536) {
    const narrow = { initial: pages, maximum: pages, shared: true };
    return new Uint8Array(new WebAssembly.Memory(narrow).buffer);
  }
  const wide = { address: "i64", initial: BigInt(pages), maximum: BigInt(pages), shared: true };
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

interface Run {
  readonly ms: number;
  readonly bytes: number;
  readonly cpuMs: number;
}

/** One run, in a process of its own. */
function runOnce(kind: string, path: string, threads: number, isCold: boolean): Run {
  if (isCold) writeFileSync("/proc/sys/vm/drop_caches", "3");
  const cache = join(tmpdir(), `lantern-bench-load-${process.pid}`);
  const own = ["--no-warnings", import.meta.filename, "--child", kind, "-t", `${threads}`, path];
  const out = execFileSync(process.execPath, own, {
    encoding: "utf8",
    // With a pool of one, open() waits for itself.
    env: {
      NODE_COMPILE_CACHE: cache,
      UV_THREADPOOL_SIZE: `${Math.max(2, threads)}`,
      ...process.env,
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  return JSON.parse(out) as Run;
}

async function child(kind: string, path: string, threads: number): Promise<void> {
  const { result, ms, cpuMs } = await timed(() => kinds[kind]!(path, threads));
  await result.end?.(); // threads that end by themselves also fill the compile cache
  process.stdout.write(JSON.stringify({ ms, cpuMs, bytes: result.bytes } satisfies Run));
}

async function compare(path: string, given: Values<typeof flags>): Promise<void> {
  const { threads, rounds, cold } = given;
  const loads: number[] = [];
  runOnce("open", path, threads, false); // fills the compile cache
  const { samples } = await measure({
    contestants: Object.keys(kinds),
    rounds,
    onRound: () => void loads.push(load()),
    run: (kind) => runOnce(kind, path, threads, cold),
  });
  const [opened, read, pass] = samples as [Run[], Run[], Run[]];
  const msOf = (runs: readonly Run[]) => runs.map(({ ms }) => ms);
  const seconds = (times: readonly number[]) => `${(median(times) / 1000).toFixed(2)} s`;
  const cpu = (runs: readonly Run[]) => `CPU ${seconds(runs.map(({ cpuMs }) => cpuMs))}`;
  const [least, most] = [Math.min(...loads), Math.max(...loads)].map((one) => one.toFixed(1));
  console.log(
    `${basename(path)}, ${(read[0]!.bytes / 1e9).toFixed(2)} GB, ${threads} threads, ${cold ? "cold" : "in the page cache"}: ` +
      `open ${seconds(msOf(opened))} (${cpu(opened)}), read ${seconds(msOf(read))} (${cpu(read)}), pass ${seconds(msOf(pass))}; ` +
      `open/read ${medianRatio(msOf(opened), msOf(read)).toFixed(2)}, medians of ${rounds}, load average ${least}-${most}`,
  );
}
