// The interface of the folder that holds the bytes of files, by id. node-file-folder.ts implements it.

export interface FileFolder {
  /** Its path, for messages. */
  readonly place: string;
  /** Begins a file; it becomes visible, whole and on disk, when finish() has returned, and never before. */
  create(id: string): Promise<NewFile>;
  /** Bytes of a file from `start` up to `end`. */
  read(id: string, start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  remove(id: string): Promise<void>;
  /** Ids of all files, unfinished ones not included; unfinished files of dead processes are removed. */
  list(): Promise<readonly string[]>;
}

export interface NewFile {
  write(bytes: Uint8Array): Promise<void>;
  finish(): Promise<void>;
  /** Removes the file. May be called after finish(), without effect. */
  discard(): Promise<void>;
}

/** Bytes read at a time. */
const pieceBytes = 256 * 1024;

/** A file's bytes in pieces. */
export async function* piecesOf(
  folder: FileFolder,
  { id, bytes }: { id: string; bytes: number },
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  for (let at = 0; at < bytes; at += pieceBytes) {
    yield await folder.read(id, at, Math.min(bytes, at + pieceBytes));
  }
}
