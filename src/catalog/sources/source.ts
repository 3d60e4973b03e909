// What a source (npm, the hub) gives pull.ts: one file far away whose bytes can be read from some offset on.

import type { DownloadPlatform } from "../../platform/download.ts";
import type { CatalogEntry, CatalogSource } from "../catalog.ts";

export interface RemoteFile {
  /** For messages: "npm package x@1.0.0", "hub file owner/repo/x.gguf". */
  name: string;
  /** Changes when the bytes behind the name change: a half-finished download of another identity is not continued. */
  identity: string;
  bytes: number;
  /** What the bytes must hash to, and who says so; undefined where nobody does. */
  sha256: { value: string; statedBy: string } | undefined;
  /** The largest offset, at most `have`, from which the bytes can be continued. */
  resumeFrom(have: number): number;
  read(offset: number, signal: AbortSignal | undefined): AsyncIterable<Uint8Array>;
}

export interface SourceContext {
  platform: DownloadPlatform;
  signal: AbortSignal | undefined;
}

/** A kind of source: one file and one line in table.ts. */
export interface SourceKind<S extends CatalogSource> {
  /** Asks the source about an entry's file; downloads nothing yet. */
  open(source: S, entry: CatalogEntry, context: SourceContext): Promise<RemoteFile>;
  /** The file where it needs no download because it came with Lantern's own installation. */
  installed(source: S, platform: DownloadPlatform): { path: string; bytes: number } | undefined;
  /** For listings. */
  describe(source: S): string;
}
