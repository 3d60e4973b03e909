// Reads a batch's input file once, before any line is answered: every line becomes a row with the position of its request.
// If any line is wrong the batch fails as a whole, with all errors (as at OpenAI): half an evaluation is of no use.

import { type Batch, batchLimits, type LineError } from "./batch.ts";
import { piecesOf } from "./file-folder.ts";
import { orderKey, parseLine, rawLines } from "./lines.ts";
import type { BatchStore } from "./store.ts";

/** Lines that are saved in one transaction: each transaction is a write to the disk. */
const linesAtOnce = 500;

export async function validateBatch(
  store: BatchStore,
  batch: Batch,
  signal: AbortSignal,
): Promise<void> {
  endValidation(store, batch.id, await readLines(store, batch, signal));
}

/** Sets the state of a batch that is being validated, by the result of readLines(). */
export function endValidation(store: BatchStore, id: string, { errors, models }: LinesRead): void {
  store.transaction(() => {
    if (errors.length > 0) {
      store.removeLines(id);
      store.move(id, ["validating"], "failed", { errors });
      return;
    }
    if (models.size === 1) store.setModel(id, [...models][0]!);
    store.move(id, ["validating"], "in_progress");
  });
}

interface LinesRead {
  readonly errors: readonly LineError[];
  /** The models that lines name. */
  readonly models: ReadonlySet<string>;
}

/** Makes the rows of all lines; returns their errors, and the models that they name. */
export async function readLines(
  store: BatchStore,
  { id, owner, endpoint, inputFile }: Batch,
  signal: AbortSignal,
): Promise<LinesRead> {
  const file = store.files.get(inputFile, owner);
  store.removeLines(id); // of a process that was killed meanwhile
  const errors: LineError[] = [];
  const models = new Set<string>();
  let held: Parameters<BatchStore["addLine"]>[1][] = [];
  let lines = 0;
  const save = (): void => {
    store.transaction(() => {
      for (const line of held) {
        if (store.addLine(id, line)) continue;
        errors.push({
          code: "duplicate_custom_id",
          message: `line ${line.number}: "custom_id": ${JSON.stringify(line.customId)} is that of an earlier line, expected another one for each`,
          param: "custom_id",
          line: line.number,
        });
      }
    });
    held = [];
  };
  for await (const raw of rawLines(piecesOf(store.files.folder, file))) {
    signal.throwIfAborted();
    if (errors.length >= batchLimits.shownErrors) break;
    const line = parseLine(raw);
    if (line === undefined) continue;
    if (!Object.hasOwn(line, "customId")) {
      errors.push(line as LineError);
      continue;
    }
    const { customId, url, body } = line as Exclude<typeof line, LineError>;
    if (url !== endpoint) {
      errors.push({
        code: "mismatched_url",
        message: `line ${raw.number}: "url": got ${JSON.stringify(url.slice(0, 200))}, expected ${JSON.stringify(endpoint)}: all lines of a batch have its endpoint`,
        param: "url",
        line: raw.number,
      });
      continue;
    }
    if (lines === batchLimits.lines) {
      errors.push({
        code: "too_many_lines",
        message: `the file has more than ${batchLimits.lines} requests, which is the limit. Divide it into several`,
        param: null,
        line: raw.number,
      });
      break;
    }
    if (typeof body.model === "string") models.add(body.model.slice(0, 200));
    const place = { start: raw.start, end: raw.end };
    held.push({ index: lines++, number: raw.number, customId, place, orderKey: orderKey(body) });
    if (held.length === linesAtOnce) save();
  }
  save();
  if (lines === 0 && errors.length === 0) {
    const message = `file ${JSON.stringify(file.name)} has no requests, expected one JSON object on each line`;
    errors.push({ code: "empty_file", message, param: "input_file_id", line: null });
  }
  return { errors, models };
}
