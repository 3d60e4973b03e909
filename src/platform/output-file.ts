// A file that a tool writes from beginning to end: whole or not at all. node-output-file.ts provides it; a browser has none
// (there, tools write into whatever sink the page gives them).

export interface OutputFile {
  write(bytes: Uint8Array): Promise<void>;
  /** Everything is written: the file takes its place. */
  finish(): Promise<void>;
  /** Removes what was written; what stood at the place before stays. Does nothing after finish(). */
  discard(): Promise<void>;
}

export interface OutputFileOptions {
  /** Whether a file that is there already may be replaced. */
  replace: boolean;
  /** How large it will be, where that is known: a disk without that room is refused at once. */
  bytes?: number;
  /** What is being read: none of these may be replaced, whatever `replace` says. */
  inputs: readonly InputFiles[];
}

/** A model's path (a file or a folder), and which files of its folder were read. */
export interface InputFiles {
  path: string;
  files: readonly string[];
}

export type CreateOutputFile = (path: string, options: OutputFileOptions) => Promise<OutputFile>;
