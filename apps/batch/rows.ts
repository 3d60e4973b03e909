// Converts rows of the database to files and batches, and back.

import type { SqlRow } from "../../src/platform/database.ts";
import type {
  Batch,
  BatchApi,
  BatchState,
  FilePurpose,
  LineCounts,
  LineError,
  StoredFile,
} from "./batch.ts";

export function toFile(row: SqlRow): StoredFile {
  return {
    id: row.id as string,
    owner: row.owner as string,
    name: row.name as string,
    purpose: row.purpose as FilePurpose,
    bytes: row.bytes as number,
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number | null,
  };
}

/** `counts`: of this store's lines; the record of another gateway's batch has its own counts. */
export function toBatch(row: SqlRow, counts: () => LineCounts): Batch {
  return {
    id: row.id as string,
    owner: row.owner as string,
    api: row.api as BatchApi,
    endpoint: row.endpoint as string,
    inputFile: row.input_file as string,
    outputFile: row.output_file as string | null,
    errorFile: row.error_file as string | null,
    state: row.state as BatchState,
    errors: JSON.parse(row.errors as string) as LineError[],
    metadata: row.metadata === null ? null : JSON.parse(row.metadata as string),
    window: row.completion_window as string,
    model: row.model as string | null,
    fingerprints: JSON.parse(row.fingerprints as string),
    counts: row.counts === null ? counts() : (JSON.parse(row.counts as string) as LineCounts),
    usage: {
      input: row.input_tokens as number,
      cached: row.cached_tokens as number,
      output: row.output_tokens as number,
    },
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
    at: JSON.parse(row.times as string),
  };
}
