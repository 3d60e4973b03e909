// What the rest of Lantern may ask of the machine it runs on. node.ts and browser.ts provide it; nothing outside this
// folder touches node:*, navigator, Worker or process.

import type { DownloadPlatform } from "./download.ts";
import type { CreateOutputFile } from "./output-file.ts";

/** One file that can be read at any offset: a local file, an HTTP resource with range requests, a browser File. */
export interface ByteSource {
  /** For messages: a file name or URL, not a promise that it can be opened again. */
  readonly name: string;
  /** Total bytes. */
  readonly size: number;
  /** Exactly `length` bytes from `offset`; a range beyond `size` or a short read is a SourceError. */
  read(offset: number, length: number): Promise<Uint8Array<ArrayBuffer>>;
  /** The same, into memory that the caller owns (no copy in between where the platform allows it). */
  readInto(offset: number, target: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

/**
 * A model as a set of named files: a GGUF (with its splits beside it), a Hugging Face folder, a llama2.c pair.
 * The same for a local path, an HTTP address and a list of browser Files.
 */
export interface ModelSource {
  /** For messages: what the user asked for. */
  readonly name: string;
  /** The file that was named, or undefined when a folder was named. */
  readonly main: string | undefined;
  /** Whether a sibling file exists; names are plain file names, never paths. */
  has(file: string): Promise<boolean>;
  open(file: string): Promise<ByteSource>;
  /** File names, where the platform can list them (a folder, a list of Files); undefined over HTTP. */
  list(): Promise<string[] | undefined>;
}

/** What can be sent to another thread to name a model: structured-cloneable. */
export type SourceSpec =
  | { kind: "path"; path: string }
  | { kind: "url"; url: string }
  | { kind: "files"; files: File[] };

/** What a thread runs: src/threads/NAME.ts. */
export type ThreadEntry = "engine" | "compute" | "measure" | "quantize" | "text";

/** A thread, seen from the one that started it: messages in, messages out. */
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

/** The engine thread's own end of the same line. */
export interface EnginePort {
  post(message: unknown, transfer?: ArrayBuffer[]): void;
  onMessage(listener: (message: unknown) => void): void;
  close(): void;
}

/** Small texts that outlive the process: measurements. Names are plain file names. */
export interface SmallFiles {
  /** Where a file is, for people: a path. */
  place(name: string): string;
  /** undefined: there is none. Rejects when it is there and cannot be read. */
  read(name: string): Promise<string | undefined>;
  /** Whole or not at all. Rejects where nothing can be kept. */
  write(name: string, text: string): Promise<void>;
}

/** The way to this machine's GPU; a string: why there is none. */
export type GpuAccess =
  | {
      readonly gpu: GPU;
      /** Only an adapter that computes on the processor was asked for. */
      readonly softwareOnly: boolean;
      /** Of its memory, what may be used; undefined: nobody said. */
      readonly memoryBytes?: number | undefined;
      /** Where a thread that waits for a GPU is kept busy with asking whether it is done: a short sleep for the thread. */
      readonly doze?: () => Promise<void>;
    }
  | string;

/** The way to run machine code that was made here; a string: why there is none. */
export type NativeAccess = NativeHost | string;

export interface NativeHost {
  readonly arch: "x64" | "arm64";
  /** What the processor can do and the operating system allows: names as Linux has them ("avx512_vnni", "asimddp"). */
  readonly features: ReadonlySet<string>;
  /**
   * Opens a shared object, for this thread: sealed memory of this content, or a file in the user's cache that is compared
   * with it first. A string: why it cannot be opened here. What is opened stays so until the process ends.
   */
  load(sharedObject: Uint8Array): NativeLibrary | string;
  /** Where a memory is. It must not move: that of a WebAssembly.Memory with a fixed size, or a SharedArrayBuffer. */
  address(memory: ArrayBufferLike): number;
}

export interface NativeLibrary {
  /** What was opened: the name of a descriptor of this process, "/proc/self/fd/21". */
  readonly path: string;
  /** Where a function is; throws where there is none of this name. */
  address(symbol: string): number;
  /** To call void symbol(double). */
  function(symbol: string): (argument: number) => void;
}

export interface Platform {
  readonly name: "node" | "browser";
  readonly cores: number;
  /** Which processor this is, to know it again: a model name; in a browser, the browser. */
  cpu(): string;
  /** All there is; undefined where the platform does not say. */
  totalMemory(): number | undefined;
  /** Bytes of the processor's largest cache; undefined where the platform does not say. */
  largestCache(): number | undefined;
  /** A setting from outside (an environment variable). */
  env(name: string): string | undefined;
  smallFiles(): SmallFiles;
  /** Bytes that a model may take now without others having to give way; undefined where the platform does not say. */
  availableMemory(): number | undefined;
  /** Processes that ran or waited to run, averaged over the last minute; undefined where the platform does not count. */
  loadAverage(): number | undefined;
  openModelSource(spec: SourceSpec): Promise<ModelSource>;
  /** Turns what a user gives (path, URL, File) into a spec. */
  describeSource(model: string | URL | File | readonly File[]): SourceSpec;
  /** Folders and downloads, where the platform has them: what catalog names are looked up with. */
  readonly downloads: (() => Promise<DownloadPlatform>) | undefined;
  /** Files that tools write, where the platform has them. */
  readonly createOutputFile: CreateOutputFile | undefined;
  /** WebGPU: in a browser its own, in Node that of the package `webgpu`, where it is installed. */
  gpu(): Promise<GpuAccess>;
  /** Machine code: in Node on Linux, where node:ffi may be used. */
  native(): Promise<NativeAccess>;
  /** A thread of its own for the engine, one of those that compute for it, or one that measures the machine. */
  startThread(entry: ThreadEntry): EngineThread;
  enginePort(): EnginePort;
  /** Lets pending messages in (between two steps of the engine). */
  breathe(): Promise<void>;
  now(): number;
  /** What objects of this thread take of JavaScript's heap; undefined where the platform does not say. */
  heapBytes(): number | undefined;
}
