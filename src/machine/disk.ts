// Measures the disk's speed on a model's file: sequential reads, past the system's file cache, with as many reads at once as the
// threads that read weights (backends/cpu/disk) make. A measurement takes at most half a second, so it runs whenever the speed is
// needed: a stored number would describe another file or another disk.

import type { DirectFile, FilePart, OpenDirect } from "../platform/platform.ts";

const PIECE_BYTES: number = 1 << 20;
const READS_AT_ONCE = 4;
const MOST_MS = 500;
const MOST_BYTES: number = 512 << 20;

/** The same of a model; `parts` are those of one of its weights. undefined: it is not in a local file that can be opened again. */
export async function measureModelDisk(
  parts: readonly FilePart[] | undefined,
  openDirect: OpenDirect | undefined,
): Promise<number | undefined> {
  const part = parts?.[0];
  if (!part || !openDirect) return undefined;
  const direct = openDirect(part.descriptor);
  try {
    return await measureDisk(direct);
  } finally {
    direct.close();
  }
}

/** Bytes per second; undefined: no read succeeded. `mostMs` and `mostBytes`: the end, at the first of both. */
export async function measureDisk(
  file: DirectFile,
  { mostMs = MOST_MS, mostBytes = MOST_BYTES }: { mostMs?: number; mostBytes?: number } = {},
): Promise<number | undefined> {
  // The memory of WebAssembly begins at a page, as direct reads need it.
  const pages = (READS_AT_ONCE * PIECE_BYTES) / 65536;
  const { buffer } = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const start = performance.now();
  let [next, read] = [0, 0];
  const reader = async (_: unknown, i: number): Promise<void> => {
    const target = new Uint8Array(buffer, i * PIECE_BYTES, PIECE_BYTES);
    while (next < mostBytes && performance.now() - start < mostMs) {
      const at = next;
      next += PIECE_BYTES;
      const count = await file.read(target, at);
      read += count;
      if (count < PIECE_BYTES) return; // the end of the file
    }
  };
  await Promise.all(Array.from({ length: READS_AT_ONCE }, reader));
  const seconds = (performance.now() - start) / 1000;
  return read > 0 ? read / seconds : undefined;
}
