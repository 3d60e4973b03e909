// The models that this machine has or could get, as the server sees them: a list, downloads, and opening one. The catalog
// and the disk are behind this interface; `lantern serve` provides it (src/cli/serve-library.ts), tests make it up.
//
// A name that comes from a request is only ever compared with the names of the list: it never becomes a path.

import type { Model, ModelInfo } from "../index.ts";

export interface LibraryModel {
  name: string;
  description: string;
  licence: string;
  bytes: number;
  /** Whether it was trained to chat. */
  chat: boolean;
  /** installed: came with Lantern. cached: downloaded. partial: a stopped download that can go on. */
  state: "installed" | "cached" | "partial" | "absent";
  /** Where it comes from, for people. */
  source: string;
}

export interface TaskOptions {
  signal: AbortSignal;
  onProgress(progress: { loadedBytes: number; totalBytes: number }): void;
}

export interface LibraryOpenOptions extends TaskOptions {
  /** A built-in chat template's name; absent: the model's own. */
  chatTemplate?: string | undefined;
  contextSize?: number | undefined;
}

export interface ModelLibrary {
  list(): Promise<LibraryModel[]>;
  /** Whether the name could be downloaded though it is not in the list (hf:owner/repo/file.gguf). */
  canDownload(name: string): boolean;
  download(name: string, options: TaskOptions): Promise<void>;
  open(name: string, options: LibraryOpenOptions): Promise<Model>;
  /** What inspect() and limits() take for a served model; undefined: not known here. */
  locate(id: string): Promise<string | undefined>;
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
