// Data that the threads share about weights that stay on disk: plain data, sent to every thread, and words in the shared
// memory.
//
// Every batch uses the weights in the same order, the cycle. Readers read them in that order, round after round, pack them, and
// write them into the ring: a weight has the same address there in every round, so instructions have fixed addresses. Readers run
// ahead of the batch as far as the ring has room. Before a matmul, the instruction disk_wait (ops/disk-wait.ts) releases the
// weights that the instructions before it have read, and waits until its own weights are there.
//
// i32 words, from DiskProgram.words on, each in a cache line of its own (WORD):
//   next      number of the next piece to read, counted on from round to round
//   released  number of weights that the batches are done with, counted on in the same way
//   loaded    goes up when a weight, or an expert, is complete: threads that wait for one sleep on it
//   work      goes up when there may be something to read: readers sleep on it
//   paused    readers take no piece
//   busy      number of readers that have a piece
//   stopped   readers end
//   failed    1 or 2: a piece could not be read, or not in time; 2: `message` says why (failure.ts)

import { type DemandProgram, demandTokenBytes } from "./demand.ts";

/** A weight of the cycle. */
export interface DiskWeight {
  readonly name: string;
  /** The instruction that packs it into its part of the ring (repack.ts). */
  readonly packing: number;
  /** The file, as an index of the leader's open files, and where the weight begins in it. */
  readonly file: number;
  readonly offset: number;
  readonly bytes: number;
  /** Rows of a piece, and the number of pieces: of each of its matrices (experts), and in all. */
  readonly step: number;
  readonly perMatrix: number;
  readonly pieces: number;
  /** Number of its first piece in the cycle. */
  readonly first: number;
  /** So many weights of this round must be released before it may be written; negative: of the round before. */
  readonly needs: number;
}

export interface DiskProgram {
  /** The cycle. */
  readonly weights: readonly DiskWeight[];
  /** Pieces of a round. */
  readonly pieces: number;
  readonly readers: number;
  readonly words: number;
  /** i32 for each weight: pieces that are in the ring. */
  readonly done: number;
  /** For each reader: a buffer for a piece, at a multiple of ALIGNMENT. */
  readonly buffers: number;
  readonly bufferBytes: number;
  /** For each reader: scratch memory of kernels that pack. */
  readonly scratch: number;
  /** The number of bytes, then UTF-8: why a piece could not be read. */
  readonly message: number;
  /** The time in ms that a compute thread waits for a piece: MOST_WAIT_MS, less in tests. */
  readonly waitMs: number;
  /** Experts that are read on demand, beside the cycle; undefined: none. */
  readonly demand?: DemandProgram | undefined;
  /** f64 for each reader, READER_TIMES each: ms spent on reading and packing, and bytes that were read. */
  readonly times: number;
}

/** Bytes of files that are not in memory. */
export function diskBytesOf(program: DiskProgram): number {
  const { demand } = program;
  const missing = (demand?.weights ?? []).reduce(
    (sum, { experts, slots, expertBytes }) => sum + (experts - slots) * expertBytes,
    0,
  );
  return batchBytesOf(program) + missing;
}

/** Bytes of files that a round reads. */
export function batchBytesOf({ weights }: DiskProgram): number {
  return weights.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Bytes of files that a token reads, if every expert is used equally often. */
export function tokenBytesOf(program: DiskProgram): number {
  const { demand } = program;
  return batchBytesOf(program) + (demand ? demandTokenBytes(demand) : 0);
}

export const WORD = {
  next: 0,
  released: 16,
  loaded: 32,
  paused: 48,
  busy: 64,
  stopped: 80,
  failed: 96,
  work: 112,
  count: 128,
} as const;

export const MESSAGE_BYTES = 1024;

/** Numbers of a reader, in a cache line of its own. */
export const READER_TIMES = { read: 0, pack: 1, bytes: 2, numbers: 8 } as const;

/** Direct reads begin and end at multiples of this in the file and in memory: the largest block of a disk. */
export const ALIGNMENT = 4096;

/**
 * Without a piece for this long, the disk hangs, and the batch fails. Compute threads count as lost later than that (LOST_MS after it,
 * threads/batch-wait.ts), and the engine's thread as hung after 60 s (engine/watch.ts): threads that wait for the disk report first.
 */
export const MOST_WAIT_MS = 25_000;

/** When a batch has failed, the next one waits this long for reads that were under way. */
export const BUSY_MS = 10_000;

/** A sleeper looks again after this long, even if nothing woke it. */
export const SLEEP_MS = 100;
