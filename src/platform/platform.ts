// The interface between Lantern and the machine it runs on. node.ts and browser.ts implement it; code outside this folder never touches
// node:*, navigator, Worker or process.

import type { CpuTimes } from "../base/machine-load.ts";
import type { BlockFolders } from "./block-files.ts";
import type { DownloadPlatform } from "./download.ts";
import type { CreateOutputFile } from "./output-file.ts";

/** One file that can be read at any offset: a local file, an HTTP resource with range requests, a browser File. */
export interface ByteSource {
  /** File name or URL for messages; it need not be possible to open it again. */
  readonly name: string;
  /** Total bytes. */
  readonly size: number;
  /** Exactly `length` bytes from `offset`; a range beyond `size` or a short read is a SourceError. */
  read(offset: number, length: number): Promise<Uint8Array<ArrayBuffer>>;
  /** The same, into the caller's memory (without a copy where the platform allows that). */
  readInto(offset: number, target: Uint8Array): Promise<void>;
  /** For Platform.readAt, on every thread, until close(). Optional: not every source is a local file. */
  readonly descriptor?: number;
  close(): Promise<void>;
}

/** The location of bytes in an open local file. */
export interface FilePart {
  /** For ReadAt, until the source is closed. */
  readonly descriptor: number;
  readonly offset: number;
}

/** Reads bytes of a file on this thread; returns their number, which may be smaller than the target. 0: the file ends there. */
export type ReadAt = (descriptor: number, target: Uint8Array, position: number) => number;

/** An open local file with bytes that are read again and again. */
export interface DirectFile {
  /** For ReadAt, until close(). */
  readonly descriptor: number;
  /** Reads bypass the system's cache of files: they begin and end at multiples of 4096, in the file and in memory. */
  readonly isDirect: boolean;
  /** Reads without blocking this thread; returns the number of bytes. */
  read(target: Uint8Array, position: number): Promise<number>;
  /** The change since it was opened, as a clause; undefined: it is unchanged. */
  changed(): string | undefined;
  close(): void;
}

/**
 * Opens the file of a descriptor once more: past the system's cache of files where that works, or `buffered` by it, which has the bytes
 * that other processes read and drops them if memory is short.
 */
export type OpenDirect = (descriptor: number, buffered?: boolean) => DirectFile;

/**
 * A model as a set of named files: a GGUF (and its splits), a Hugging Face folder, a llama2.c pair. The same for a
 * local path, an HTTP URL and a list of browser Files.
 */
export interface ModelSource {
  /** The user's name for it, for messages. */
  readonly name: string;
  /** The named file, or undefined if a folder was named. */
  readonly main: string | undefined;
  /** Whether a sibling file exists; names are plain file names, never paths. */
  has(file: string): Promise<boolean>;
  open(file: string): Promise<ByteSource>;
  /** File names, if the platform can list them (a folder, a list of Files); undefined over HTTP. */
  list(): Promise<string[] | undefined>;
}

/** Names a model for another thread: structured-cloneable. */
export type SourceSpec =
  | { kind: "path"; path: string }
  | { kind: "url"; url: string }
  | { kind: "files"; files: File[] };

/** The code that a thread runs: src/threads/NAME.ts. */
export type ThreadEntry = "engine" | "compute" | "measure" | "quantize" | "text";

/** A thread as seen by the thread that started it: messages in, messages out. */
export interface EngineThread {
  post(message: unknown, transfer?: ArrayBuffer[]): void;
  onMessage(listener: (message: unknown) => void): void;
  /** The thread died: an uncaught error, an exit, a lost process. */
  onFailure(listener: (error: Error) => void): void;
  /** Whether the thread keeps the process alive. */
  ref(): void;
  unref(): void;
  terminate(): Promise<void>;
}

/** The engine thread's own end of the same channel. */
export interface EnginePort {
  post(message: unknown, transfer?: ArrayBuffer[]): void;
  onMessage(listener: (message: unknown) => void): void;
  close(): void;
}

/** Small persistent texts: measurements. Names are plain file names. */
export interface SmallFiles {
  /** Path of a file, for messages. */
  place(name: string): string;
  /** undefined if there is none. Rejects if it exists and cannot be read. */
  read(name: string): Promise<string | undefined>;
  /** Atomic. Rejects if it cannot store files. */
  write(name: string, text: string): Promise<void>;
}

/** Access to this machine's GPU; a string says why there is none. */
export type GpuAccess =
  | {
      readonly gpu: GPU;
      /** Only an adapter that computes on the processor was requested. */
      readonly softwareOnly: boolean;
      /** GPU memory that may be used; undefined if no limit was set. */
      readonly memoryBytes?: number | undefined;
      /** Batches that may be submitted before their tokens are known; undefined: a default. */
      readonly ahead?: number | undefined;
      /** Workgroups of a dispatch that computes a whole layer of a token; 0: each op has its own; undefined: a default. */
      readonly layerGroups?: number | undefined;
      /** A short sleep, for platforms where a thread that waits for the GPU polls whether it is done. */
      readonly doze?: () => Promise<void>;
    }
  | string;

/** Access to machine code generated here; a string says why there is none. */
export type NativeAccess = NativeHost | string;

export interface NativeHost {
  readonly arch: "x64" | "arm64";
  /** Features that the processor has and the operating system allows, by Linux's names ("avx512_vnni", "asimddp"). */
  readonly features: ReadonlySet<string>;
  /**
   * Loads a shared object for this thread: from sealed memory, or from a file in the user's cache that is first
   * compared with this content. A string says why it cannot be loaded. It stays loaded until the process ends.
   */
  load(sharedObject: Uint8Array): NativeLibrary | string;
  /** Binds the calling thread to these CPUs; a string says why that failed. */
  bind(cpus: readonly number[]): string | undefined;
  /** The address of a memory. It must not move: a WebAssembly.Memory of fixed size, or a SharedArrayBuffer. */
  address(memory: ArrayBufferLike): number;
  /** The folder in which code is kept from run to run; undefined: none, as when the sources may change at any time. */
  readonly kept?: KeptFiles | undefined;
}

/** Small files that no other user could have written. */
export interface KeptFiles {
  /** The name of the sources of this run: files that others wrote have another. */
  readonly sources: string;
  /** The whole content as it was written; undefined: there is none, or it is damaged, or another user could have changed it. */
  read(name: string): Uint8Array<ArrayBuffer> | undefined;
  /** Replaces it, or does nothing if that is not possible. */
  write(name: string, content: Uint8Array<ArrayBuffer>): void;
}

/** The CPUs of the machine, by the system's numbers. */
export interface CpuTopology {
  /** The CPUs that this process may use, ascending. */
  readonly allowed: readonly number[];
  /** The CPUs of each NUMA node that has any; one entry if the system reports no nodes. */
  readonly nodes: readonly (readonly number[])[];
  /** The one that the calling thread ran on. */
  readonly current?: number | undefined;
}

export interface NativeLibrary {
  /** The loaded file, as a descriptor of this process: "/proc/self/fd/21". */
  readonly path: string;
  /** The address of a function; throws if there is none of this name. */
  address(symbol: string): number;
  /** A JavaScript function that calls void symbol(double). */
  function(symbol: string): (argument: number) => void;
}

export interface Platform {
  readonly name: "node" | "browser";
  readonly cores: number;
  /** Identifies the processor: a model name; in a browser, the browser. */
  cpu(): string;
  /** Memory of the machine; undefined where the platform does not report it. */
  totalMemory(): number | undefined;
  /** Bytes of the processor's largest cache; undefined where the platform does not report it. */
  largestCache(): number | undefined;
  /** An environment variable. */
  env(name: string): string | undefined;
  smallFiles(): SmallFiles;
  /** Bytes that a model may take now without displacing others; undefined where the platform does not report it. */
  availableMemory(): number | undefined;
  /** The working times of the cores and of this process; undefined if the platform does not report them. */
  cpuTimes(): CpuTimes | undefined;
  openModelSource(spec: SourceSpec): Promise<ModelSource>;
  /** Whether there is a file or folder of this name. */
  isPath(name: string): Promise<boolean>;
  /** undefined where there are no descriptors. */
  readonly readAt: ReadAt | undefined;
  /** undefined where a descriptor cannot be opened again. */
  readonly openDirect: OpenDirect | undefined;
  /** Turns a user's location (path, URL, File) into a spec. */
  describeSource(model: string | URL | File | readonly File[]): SourceSpec;
  /** Folders and downloads, if the platform has them: catalog names are looked up there. */
  readonly downloads: (() => Promise<DownloadPlatform>) | undefined;
  /** Output files of tools, if the platform has them. */
  readonly createOutputFile: CreateOutputFile | undefined;
  /** Folders for stored state, under `folder`; undefined where there are none. */
  readonly blockFolders: ((folder?: string) => Promise<BlockFolders>) | undefined;
  /** WebGPU: the browser's own, or in Node that of the package `webgpu`, if it is installed. */
  gpu(): Promise<GpuAccess>;
  /** Why there is no GPU, as far as that is known without loading anything; undefined: there may be one. */
  noGpu(): string | undefined;
  /** Machine code: in Node on Linux, if node:ffi may be used. */
  native(): Promise<NativeAccess>;
  /** The CPUs that threads can be bound to; a string says why they are not known. */
  cpuTopology(): Promise<CpuTopology | string>;
  /** Starts a thread. */
  startThread(entry: ThreadEntry): EngineThread;
  enginePort(): EnginePort;
  /** Lets pending messages in, between two batches of the engine. */
  yieldThread(): Promise<void>;
  now(): number;
  /** Keeps the code compiled on this thread for the next start; undefined if the platform does that itself, or cannot. */
  keepCode?: () => void;
  /** Size of this thread's JavaScript heap; undefined where the platform does not report it. */
  heapBytes(): number | undefined;
}
