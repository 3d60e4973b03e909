// The models that this machine has or could download, as the server sees them: listing, downloading, opening and
// deleting them, and the hub. The catalog and the disk are behind this interface; `lantern serve` implements it
// (apps/cli/serve-library.ts), tests use fakes.
//
// A name from a request is only compared with the names of the list and never becomes a path. Only `folder` and `link`
// take paths from requests, and their routes are for this machine's own user alone.

import type { Model, ModelFit, ModelInfo, OpenOptions } from "../../../src/index.ts";

export interface LibraryModel {
  name: string;
  description: string;
  licence: string;
  bytes: number;
  /** Whether it was trained to chat. */
  chat: boolean;
  /**
   * installed: came with Lantern. cached: downloaded. partial: an interrupted download that can be resumed. linked:
   * a file elsewhere on this machine. given: the server was started with it.
   */
  state: "installed" | "cached" | "partial" | "linked" | "given" | "absent";
  /** Its source, for display. */
  source: string;
  /** Hash of its file, if it is stated somewhere. */
  sha256?: string | undefined;
  /** Disk space that deleting it frees; 0: there is nothing to delete. */
  diskBytes?: number | undefined;
  /** Its last load choices, if a person made some. */
  options?: LoadChoices | undefined;
  /** Whether and how fast it runs on this machine. */
  fit?: ModelFit | undefined;
}

export interface TaskOptions {
  signal: AbortSignal;
  onProgress(progress: { loadedBytes: number; totalBytes: number }): void;
}

/** The options that a person may choose for a model. They are remembered. */
export interface LoadChoices {
  /** The name of a built-in chat template; absent: the model's own. */
  chatTemplate?: string | undefined;
  contextSize?: number | undefined;
  threads?: number | undefined;
  gpuLayers?: number | "all" | "auto" | undefined;
  gpuFor?: OpenOptions["gpuFor"] | undefined;
  kvType?: OpenOptions["kvType"] | undefined;
  weights?: OpenOptions["weights"] | undefined;
}

/** A change of them: null restores the default; unnamed options stay. */
export type LoadChange = { [Name in keyof LoadChoices]?: LoadChoices[Name] | null };

export interface LibraryOpenOptions extends TaskOptions, LoadChange {
  /** Its path when a conversation used it, for a name that is not in the list. Never from a request. */
  path?: string | undefined;
}

/** A model of a hub repository. */
export interface LibraryVariant {
  /** The name for download(). */
  name: string;
  /** "Q4_K_M", or the file if its name has no type. */
  label: string;
  bytes: number;
  files: number;
  /** A rough check: the file's size against the machine's memory. */
  fits: boolean;
  /** The default if none is named. */
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

/** The folder of downloads. */
export interface LibraryPlace {
  folder: string;
  usedBytes: number;
  /** undefined: the system does not report it. */
  freeBytes: number | undefined;
  memoryBytes: number;
  freeMemoryBytes: number;
}

/** The memory that loading a model would take. */
export interface LoadPlan {
  weightBytes: number;
  /** Bytes for the whole context. */
  kvBytes: number;
  /** Buffers. */
  workBytes: number;
  totalBytes: number;
  contextSize: number;
  trainedContext: number;
  layers: number;
  /** The largest context that memory allows. */
  mostContext?: number;
  /** Before it is loaded. */
  freeMemoryBytes: number;
  memoryBytes: number;
}

export interface ModelLibrary {
  list(): Promise<LibraryModel[]>;
  /** Whether a name that is not in the list could be downloaded (hf:owner/repo, a URL of the hub). */
  canDownload(name: string): boolean;
  /** Downloads the model of that name; returns its name in the list. */
  download(name: string, options: TaskOptions): Promise<string>;
  open(name: string, options: LibraryOpenOptions): Promise<Model>;
  /** The location of a listed or served model for inspect() and limits(); undefined: not known. */
  locate(id: string): Promise<string | undefined>;
  /** Deletes a model of the list, or forgets a linked one; returns the freed bytes. */
  remove(name: string): Promise<{ how: "deleted" | "forgotten"; bytes: number }>;
  /** sha256 of a model's (first) file; undefined if it is not here. Reads the whole file once. */
  digest(name: string): Promise<string | undefined>;
  place(): Promise<LibraryPlace>;
  /** The memory that loading it after this change of its options would take. */
  plan(
    name: string,
    options: Pick<LoadChange, "contextSize" | "kvType" | "weights">,
  ): Promise<LoadPlan>;
  /** The models of a hub repository. */
  variants(repository: string, signal: AbortSignal): Promise<LibraryVariant[]>;
  search(words: string, signal: AbortSignal): Promise<LibraryFinding[]>;
  /** A folder's content; undefined path: the start folder. */
  folder(path: string | undefined): Promise<LibraryFolder>;
  /** Files of that name and size in the usual model folders. */
  findFile(name: string, bytes: number): Promise<string[]>;
  /** Adds a file or folder of this machine to the list; returns its name there. */
  link(path: string): Promise<string>;
}

/** A sentence without the folders of its files: a page must not show them. */
export function withoutFolders(text: string): string {
  return text.replaceAll(/(^|[\s"'(])(?:[A-Za-z]:)?[\\/](?:[^\s\\/"']+[\\/])+/g, "$1");
}

/** A model's facts for a page. */
export function publicInfo(info: ModelInfo): ModelInfo {
  const notes = info.backend.notes.map(withoutFolders);
  return { ...info, backend: { ...info.backend, notes } };
}
