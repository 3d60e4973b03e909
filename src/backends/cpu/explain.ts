// The --explain lines of the CPU backend: one for each choice, and for each thing that is not available. Nothing is decided
// here; cpu.ts and compile.ts decide.

import type { WasmFeatures } from "../../kernels/features.ts";
import type { DiskUse, ExpertReads } from "../backend.ts";
import { cpuFeatures } from "./native/isa.ts";
import type { NativeKernels } from "./native/native.ts";

export interface CpuFacts {
  /** Machine code, or why there is none. */
  readonly native: NativeKernels | string;
  /** Whether there are large pages; undefined: they were not asked for. */
  readonly pages: string | undefined;
  readonly wasm: WasmFeatures;
  readonly threads: number;
  readonly threadsAsked: number;
  /** 64-bit addresses. */
  readonly isWide: boolean;
  /** Memories that only machine code reads. */
  readonly farMemories: number;
  /** Weights that stay on disk; undefined: none. */
  readonly onDisk: DiskUse | undefined;
  /** Notes on the options. */
  readonly notes: readonly string[];
  /** Which kernels compute which matmuls. */
  readonly choices: readonly string[];
}

export function explainCpu(facts: CpuFacts): readonly string[] {
  const { wasm: features } = facts;
  return [
    `WebAssembly SIMD, ${features.relaxed ? `relaxed (dot4 ${features.dot4})` : "not relaxed"}`,
    nativeText(facts.native),
    ...featuresText(facts.native),
    ...(facts.pages === undefined ? [] : [facts.pages]),
    threadsText(facts.threads, facts.threadsAsked),
    ...addressesText(facts.isWide, features.memory64),
    ...(facts.farMemories === 0
      ? []
      : [`row panels in ${facts.farMemories} memories beside WebAssembly's`]),
    ...diskText(facts.onDisk),
    ...facts.notes,
    ...facts.choices,
  ];
}

function addressesText(isWide: boolean, memory64: boolean): string[] {
  if (isWide) return ["64-bit addresses, for more than 4 GiB"];
  return memory64
    ? []
    : [
        "WebAssembly has only 32-bit addresses here, so a model and its context may take 4 GiB together (16 GiB in Node.js 24 and newer)",
      ];
}

function diskText(onDisk: DiskUse | undefined): string[] {
  if (!onDisk) return [];
  const mb = (bytes: number) => `${Math.round(bytes / 1e6)} MB`;
  const { weights, fileBytes, tokenBytes, ringBytes, isDirect, experts } = onDisk;
  const how = isDirect ? "past the system's cache of files" : "through the system's cache of files";
  const lines = [`${mb(fileBytes)} of weights stay on disk and are read from there, ${how}`];
  if (weights > 0) {
    lines.push(
      `${weights} of them are read for every batch; they take turns in ${mb(ringBytes)} of memory`,
    );
  }
  if (experts) {
    const { all, used, slots } = experts;
    lines.push(
      `experts are read on demand: memory holds ${slots} of ${all} in each layer, a token uses ${used}; a token reads ${mb(tokenBytes)} if all are used equally often`,
    );
  }
  return lines;
}

/** The cache hits of experts that are read on demand, for profiles: sentences without a full stop. */
export function expertNotes(reads: ExpertReads | undefined): string[] {
  if (!reads || reads.hits + reads.misses === 0) return [];
  const { hits, misses, readBytes, waitMs, guessed, guessedRight } = reads;
  const percent = ((100 * hits) / (hits + misses)).toFixed(1);
  const [mb, seconds] = [(readBytes / 1e6).toFixed(0), (waitMs / 1000).toFixed(1)];
  return [
    `experts in memory: ${percent} % of ${hits + misses} uses; ${mb} MB were read from disk, for which threads waited ${seconds} s in their matmuls`,
    ...(guessed === 0
      ? []
      : [
          `experts read ahead: ${guessed}, of which the layers used ${((100 * guessedRight) / guessed).toFixed(0)} %`,
        ]),
  ];
}

function nativeText(native: NativeKernels | string): string {
  if (typeof native === "string") return `matmul kernels: WebAssembly (${native})`;
  const { name, width } = native.target;
  const without = native.withoutTiles ? ` (no AMX tiles: ${native.withoutTiles})` : "";
  return `matmul kernels: machine code for ${name}, ${width}-byte vectors${without}`;
}

/** The processor's features that kernels can use, and the choices of --isa. */
function featuresText(native: NativeKernels | string): string[] {
  if (typeof native === "string") return [];
  const { features, isas } = cpuFeatures(native.host);
  return [`processor: has ${features.join(", ")}; instruction sets (isa): ${isas.join(", ")}`];
}

function threadsText(threads: number, asked: number): string {
  const count = `${threads} thread${threads > 1 ? "s" : ""}`;
  if (threads === asked) return count;
  return `${count} instead of ${asked}: there is no SharedArrayBuffer (a web page has one if it is served with the COOP and COEP headers)`;
}
