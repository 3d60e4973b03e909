// The end of a batch: its answers become files, in the order of the input. Lines that were answered with status 200 are in the
// output file, all others in the error file. The files and the batch's last state appear in one transaction, so that a crash
// before it leaves nothing and the next start writes them again.

import type { Batch, BatchState, LineState, OutputLine, StoredFile } from "./batch.ts";
import type { BatchStore } from "./store.ts";
import type { FileWriter } from "./stored-files.ts";

/** Lines read from the database at a time. */
const linesAtOnce = 200;

const utf8 = new TextEncoder();

/** The errors of lines without an answer. */
const unanswered: Readonly<Partial<Record<LineState, { code: string; message: string }>>> = {
  cancelled: {
    code: "batch_cancelled",
    message: "this request was not answered: its batch was cancelled first",
  },
  expired: {
    code: "batch_expired",
    message: "this request was not answered within the completion window of its batch",
  },
};

/** `end`: the final state of the batch. */
export async function finalizeBatch(
  store: BatchStore,
  batch: Batch,
  end: BatchState,
  signal: AbortSignal,
): Promise<void> {
  const { id, owner } = batch;
  const writers: Partial<Record<"output" | "error", FileWriter>> = {};
  try {
    for (let from = 0; ; ) {
      const lines = store.answers(id, from, linesAtOnce);
      if (lines.length === 0) break;
      from = lines.at(-1)!.index + 1;
      for (const { index, customId, state, answer } of lines) {
        signal.throwIfAborted();
        const kind = state === "done" ? "output" : "error";
        writers[kind] ??= await store.files.create({
          owner,
          name: `${id}_${kind}.jsonl`,
          purpose: "batch_output",
        });
        const text = answer ?? JSON.stringify(withoutAnswer(id, index, customId, state));
        await writers[kind].write(utf8.encode(`${text}\n`));
      }
    }
    await writers.output?.complete();
    await writers.error?.complete();
    store.transaction(() => {
      if (!store.isOwn(id)) throw new Error("another gateway has the batch");
      const saved = (writer: FileWriter | undefined): StoredFile | undefined => writer?.save();
      const [output, errorFile] = [saved(writers.output)?.id, saved(writers.error)?.id];
      store.move(id, ["finalizing", "cancelling"], end, {
        output: output ?? null,
        errorFile: errorFile ?? null,
      });
    });
  } catch (error) {
    await writers.output?.discard();
    await writers.error?.discard();
    throw error;
  }
}

/** The id of a line's answer is the same however often it is written. */
export function answerId(batch: string, index: number): string {
  return `batch_req_${batch.replace(/^.*_/, "")}_${index}`;
}

function withoutAnswer(
  batch: string,
  index: number,
  customId: string,
  state: LineState,
): OutputLine {
  return {
    id: answerId(batch, index),
    custom_id: customId,
    response: null,
    error: unanswered[state] ?? { code: "no_answer", message: `the request is ${state}` },
  };
}
