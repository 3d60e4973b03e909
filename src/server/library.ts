// The models that this machine has or could get, as the server sees them: a list, downloads, opening and deleting one, the
// hub. The catalog and the disk are behind this interface; `lantern serve` provides it (src/cli/serve-library.ts), tests
// make it up.
//
// A name that comes from a request is only ever compared with the names of the list: it never becomes a path. Paths come
// from requests in `folder` and `link` alone, which routes offer to this machine's own user and nobody else.

import type { Model, ModelFit, ModelInfo, OpenOptions } from "../index.ts";

export interface LibraryModel {
  name: string;
  description: string;
  licence: string;
  bytes: number;
  /** Whether it was trained to chat. */
  chat: boolean;
  /**
   * installed: came with Lantern. cached: downloaded. partial: a stopped download that can go on. linked: a file elsewhere
   * on this machine.
   */
  state: "installed" | "cached" | "partial" | "linked" | "absent";
  /** Where it comes from, for people. */
  source: string;
  /** Of its file, where somebody has stated it. */
  sha256?: string | undefined;
  /** What deleting it frees on the disk; 0: there is nothing to delete. */
  diskBytes?: number | undefined;
  /** What this machine can do with it. */
  fit?: ModelFit | undefined;
}

export interface TaskOptions {
  signal: AbortSignal;
  onProgress(progress: { loadedBytes: number; totalBytes: number }): void;
}

export interface LibraryOpenOptions extends TaskOptions {
  /** A built-in chat template's name; absent: the model's own. */
  chatTemplate?: string | undefined;
  contextSize?: number | undefined;
  threads?: number | undefined;
  gpuLayers?: number | "all" | "auto" | undefined;
  kvType?: OpenOptions["kvType"] | undefined;
}

/** A model of a hub repository. */
export interface LibraryVariant {
  /** What download() takes. */
  name: string;
  /** "Q4_K_M", or the file where its name says no type. */
  label: string;
  bytes: number;
  files: number;
  /** Roughly: the file against the machine's memory. */
  fits: boolean;
  /** The one that is taken where none is named. */
  suggested: boolean;
}

export interface LibraryFinding {
  repo: string;
  downloads: number;
  likes: number;
  gated: boolean;
  /** ISO date. */
  updated: string;
}

/** A folder of this machine, for choosing a file in it. */
export interface LibraryFolder {
  path: string;
  parent: string | null;
  /** Folders and models, nothing else. */
  entries: { name: string; path: string; kind: "folder" | "model"; bytes: number }[];
}

/** Where downloads are kept. */
export interface LibraryPlace {
  folder: string;
  usedBytes: number;
  /** undefined: the system does not say. */
  freeBytes: number | undefined;
  memoryBytes: number;
  freeMemoryBytes: number;
}

/** What loading a model would take. */
export interface LoadPlan {
  weightBytes: number;
  /** Of the whole context. */
  kvBytes: number;
  /** Buffers. */
  workBytes: number;
  totalBytes: number;
  contextSize: number;
  trainedContext: number;
  layers: number;
  /** Before it is loaded. */
  freeMemoryBytes: number;
  memoryBytes: number;
}

export interface ModelLibrary {
  list(): Promise<LibraryModel[]>;
  /** Whether the name could be downloaded though it is not in the list (hf:owner/repo, an address of the hub). */
  canDownload(name: string): boolean;
  /** Downloads what a name stands for; its name in the list from then on. */
  download(name: string, options: TaskOptions): Promise<string>;
  open(name: string, options: LibraryOpenOptions): Promise<Model>;
  /** What inspect() and limits() take for a model of the list or a served one; undefined: not known here. */
  locate(id: string): Promise<string | undefined>;
  /** Deletes a model of the list, or forgets one that lies elsewhere; the bytes that became free. */
  remove(name: string): Promise<{ how: "deleted" | "forgotten"; bytes: number }>;
  /** sha256 of a model's (first) file; undefined: it is not here. Reads the whole file once. */
  digest(name: string): Promise<string | undefined>;
  place(): Promise<LibraryPlace>;
  /** What loading it with these options would take; the options' defaults without them. */
  plan(
    name: string,
    options: Pick<LibraryOpenOptions, "contextSize" | "kvType">,
  ): Promise<LoadPlan>;
  /** The models of a repository of the hub. */
  variants(repository: string, signal: AbortSignal): Promise<LibraryVariant[]>;
  search(words: string, signal: AbortSignal): Promise<LibraryFinding[]>;
  /** A folder's content; undefined path: where to begin. */
  folder(path: string | undefined): Promise<LibraryFolder>;
  /** Files of that name and size in the folders where people keep models. */
  findFile(name: string, bytes: number): Promise<string[]>;
  /** Adds a file or folder of this machine to the list; its name there. */
  link(path: string): Promise<string>;
}

/** A sentence without the folders of the files that it names: where they are is nobody's business on a page. */
export function withoutFolders(text: string): string {
  return text.replaceAll(/(^|[\s"'(])(?:[A-Za-z]:)?[\\/](?:[^\s\\/"']+[\\/])+/g, "$1");
}

/** A model's facts for a page. */
export function publicInfo(info: ModelInfo): ModelInfo {
  const notes = info.backend.notes.map(withoutFolders);
  return { ...info, backend: { ...info.backend, notes } };
}
