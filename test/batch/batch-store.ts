// A store in a folder of its own, for tests, and files with requests.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Batch } from "../../apps/batch/batch.ts";
import { BatchStore } from "../../apps/batch/store.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeFileFolder } from "../../src/platform/node-file-folder.ts";

export interface BatchPlaceOfTests {
  readonly folder: string;
  open(now?: () => number): BatchStore;
  remove(): void;
}

export function batchPlace(): BatchPlaceOfTests {
  const folder = mkdtempSync(join(tmpdir(), "lantern-batch-"));
  return {
    folder,
    open: (now) =>
      new BatchStore(
        openNodeDatabase(join(folder, "batches.db")),
        nodeFileFolder(join(folder, "files")),
        now && { now },
      ),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export const endpoint = "/v1/completions";

export function lineOf(customId: string, prompt: string, url: string = endpoint): string {
  return JSON.stringify({ custom_id: customId, method: "POST", url, body: { prompt } });
}

/** A batch of these lines, not yet validated. */
export async function batchOf(
  store: BatchStore,
  text: string,
  windowMs: number = 3_600_000,
): Promise<Batch> {
  const writer = await store.files.create({ owner: "", name: "in.jsonl", purpose: "batch" });
  await writer.write(new TextEncoder().encode(text));
  const { id } = await writer.finish();
  return store.create({
    ...{ owner: "", api: "openai", endpoint, inputFile: id, window: "1h", windowMs },
    metadata: null,
  });
}

/** The lines of a file, parsed. */
export async function linesOf(store: BatchStore, id: string | null): Promise<unknown[]> {
  if (id === null) return [];
  const { bytes } = store.files.get(id, "");
  const text = new TextDecoder().decode(await store.files.folder.read(id, 0, bytes));
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as unknown);
}
