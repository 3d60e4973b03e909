// Rows of batches that are not as they were written are named.
// Held against: rows that the test has damaged.

import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished, test } from "vitest";
import { batchOf, batchPlace, lineOf } from "./batch-store.ts";

test("damaged rows of files, batches and lines are named, and what is sound is not", async () => {
  const place = batchPlace();
  onTestFinished(place.remove);
  const store = place.open();
  const batch = await batchOf(store, lineOf("a", "x"));
  const line = { index: 0, number: 1, customId: "a", place: { start: 0, end: 9 }, orderKey: "" };
  store.addLine(batch.id, line);
  store.addLine(batch.id, { ...line, index: 1, customId: "b" });
  store.finish(batch.id, 0, "done", "an answer", { input: 1, cached: 0, output: 1 });
  store.close();
  const sound = place.open();
  expect(sound.findings).toEqual([]);
  sound.close();
  const sqlite = new DatabaseSync(join(place.folder, "batches.db"));
  sqlite.exec("UPDATE lines SET answer = 'an enswer' WHERE place = 0");
  sqlite.exec("UPDATE files SET name = 'im.jsonl'; UPDATE batches SET owner = 'mallory'");
  sqlite.close();
  const damaged = place.open();
  onTestFinished(() => damaged.close());
  expect(damaged.findings).toEqual([
    expect.stringMatching(new RegExp(`^the file ${batch.inputFile} is not as it was written`)),
    expect.stringMatching(new RegExp(`^the batch ${batch.id} is not as it was written`)),
    expect.stringMatching(new RegExp(`^line 1 of the batch ${batch.id} is not as it was written`)),
  ]);
});
