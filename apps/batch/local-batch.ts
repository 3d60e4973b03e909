// One batch from a file to a file, for the command line: in a store of its own beside the output, so that a killed process can be
// started again and continues. The output has every request of the input exactly once, in its order, answered or not.

import { UsageError } from "../../src/base/errors.ts";
import type { Batch, OutputLine } from "./batch.ts";
import { type FileFolder, piecesOf } from "./file-folder.ts";
import { parseLine, rawLines } from "./lines.ts";
import type { BatchStore } from "./store.ts";

/** The input, in pieces, and a hash that identifies it. */
export interface BatchInput {
  readonly name: string;
  /** A hash of its bytes. */
  readonly hash: string;
  pieces(): AsyncIterable<Uint8Array>;
}

const owner = "";
const yearMs = 365 * 24 * 3_600_000;

/** The number of lines without a request that a message names when no line has one. */
const namedProblems = 10;

/** The "url" of its first request that can be read: errors of all others are reported together. */
async function endpointOf(input: BatchInput): Promise<string> {
  const problems: string[] = [];
  let count = 0;
  for await (const line of rawLines(input.pieces())) {
    const read = parseLine(line);
    if (read === undefined) continue;
    if ("url" in read) return read.url;
    count++;
    if (problems.length < namedProblems) problems.push(read.message);
  }
  if (count > problems.length) problems.push(`and ${count - problems.length} more`);
  throw new UsageError(
    `batch: "${input.name}": ${problems.join("; ") || "it has no request"}, expected {"custom_id", "method": "POST", "url": "/v1/chat/completions", "body"} in each line`,
  );
}

/** The batch of an earlier process with the same input, or a new one. */
export async function openLocalBatch(
  store: BatchStore,
  input: BatchInput,
): Promise<{ batch: Batch; isNew: boolean }> {
  const { items } = store.list({ limit: 100 }, { owner, api: "openai" });
  const known = items.find(
    ({ metadata, state }) => metadata?.hash === input.hash && state !== "failed",
  );
  if (known) return { batch: known, isNew: false };
  const endpoint = await endpointOf(input);
  const writer = await store.files.create({ owner, name: input.name, purpose: "batch" });
  try {
    for await (const piece of input.pieces()) await writer.write(piece);
    await writer.complete();
  } catch (error) {
    await writer.discard();
    throw error;
  }
  const batch = store.transaction(() =>
    store.create({
      ...{ owner, api: "openai", endpoint, inputFile: writer.save().id },
      ...{ window: "365d", windowMs: yearMs, metadata: { hash: input.hash } },
    }),
  );
  return { batch, isNew: true };
}

/** All lines of an ended batch, answered or not, in the order of the input. */
export async function* outputOf(store: BatchStore, batch: Batch): AsyncGenerator<OutputLine> {
  const [done, failed] = [batch.outputFile, batch.errorFile].map((id) =>
    id === null ? none() : linesOf(store.files.folder, store.files.get(id, owner)),
  );
  let [a, b] = [await done!.next(), await failed!.next()];
  while (!a.done || !b.done) {
    if (b.done || (!a.done && placeOf(a.value) < placeOf(b.value))) {
      yield a.value as OutputLine;
      a = await done!.next();
    } else {
      yield b.value;
      b = await failed!.next();
    }
  }
}

async function* none(): AsyncGenerator<OutputLine> {}

async function* linesOf(
  folder: FileFolder,
  file: { id: string; bytes: number },
): AsyncGenerator<OutputLine> {
  for await (const { bytes } of rawLines(piecesOf(folder, file))) {
    yield JSON.parse(new TextDecoder().decode(bytes)) as OutputLine;
  }
}

/** An answer's id ends with the index of its line. */
function placeOf({ id }: OutputLine): number {
  return Number(id.replace(/^.*_/, ""));
}
