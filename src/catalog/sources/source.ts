// A source of files (npm, the hub) for pull.ts: one remote file with bytes that can be read from an offset.

import type { DownloadPlatform } from "../../platform/download.ts";
import type { CatalogEntry, CatalogSource } from "../catalog.ts";

export interface RemoteFile {
  /** For messages: "npm package x@1.0.0", "hub file owner/repo/x.gguf". */
  name: string;
  /** Changes when the bytes behind the name change. A partial download of another identity is not resumed. */
  identity: string;
  bytes: number;
  /** The expected hash of the bytes, and its source; undefined if there is none. */
  sha256: { value: string; statedBy: string } | undefined;
  /** The largest offset, at most `have`, from which the download can be resumed. */
  resumeFrom(have: number): number;
  read(offset: number, signal: AbortSignal | undefined): AsyncIterable<Uint8Array>;
}

export interface SourceContext {
  platform: DownloadPlatform;
  signal: AbortSignal | undefined;
}

/** A kind of source: one file and one line in table.ts. */
export interface SourceKind<S extends CatalogSource> {
  /** Looks up an entry's file at the source, without a download. */
  open(source: S, entry: CatalogEntry, context: SourceContext): Promise<RemoteFile>;
  /** The file if it came with Lantern's own installation and needs no download. */
  installed(source: S, platform: DownloadPlatform): { path: string; bytes: number } | undefined;
  /** For listings. */
  describe(source: S): string;
}
