// Folders of files that are appended to and read at any offset: where stored state lies (engine/tiers). Files of a folder may
// be written by several processes at once, each its own.

export interface BlockFolder {
  /** For messages. */
  readonly path: string;
  list(): Promise<BlockFileFacts[]>;
  /** A new file for this process; rejects if there is one of that name. */
  create(name: string): Promise<BlockWriter>;
  /** For reading; undefined: it is gone. */
  open(name: string): Promise<BlockReader | undefined>;
  /** For overwriting parts of it; undefined: it is gone. Rejects if another program prevents that. */
  change(name: string): Promise<BlockWriter | undefined>;
  /** Says that the file was used now. Failures are ignored. */
  touch(name: string): Promise<void>;
  /** Succeeds if it is gone already. */
  remove(name: string): Promise<void>;
}

export interface BlockFileFacts {
  readonly name: string;
  readonly bytes: number;
  /** When it was last written to or used, in ms since 1970. */
  readonly usedAt: number;
}

export interface BlockReader {
  /** Fills the target from `offset`; returns the number of bytes read. */
  read(offset: number, target: Uint8Array): Promise<number>;
  /** The same into several targets, one after the other. Optional: a platform may have no such call. */
  readPieces?(offset: number, targets: readonly Uint8Array[]): Promise<number>;
  close(): Promise<void>;
}

export interface BlockWriter extends BlockReader {
  /** Writes all of it at `offset`, one piece after the other. Rejects with a sentence, for example if the disk is full. */
  write(offset: number, ...pieces: readonly Uint8Array[]): Promise<void>;
  truncate(size: number): Promise<void>;
  /** Resolves when written bytes would survive a power cut. Optional: a platform may have no such call. */
  sync?(): Promise<void>;
}

/** All folders of stored state, one for each model and way of computing it. */
export interface BlockFolders {
  readonly path: string;
  names(): Promise<string[]>;
  /** Makes it if it is missing. Rejects if it cannot store files, with the reason. */
  folder(name: string): Promise<BlockFolder>;
  /** Removes a folder and its files. Succeeds if it is gone already. */
  remove(name: string): Promise<void>;
  /** Bytes that are free there; undefined where that is not known. */
  freeBytes(): Promise<number | undefined>;
  /** CRC-32 by the platform, of bytes after others with checksum `before`. Optional: base/crc32.ts has one. */
  readonly crc32?: ((bytes: Uint8Array, before?: number) => number) | undefined;
}
