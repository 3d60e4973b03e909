// The facts of a batch for the Batches page: the name of its state, its progress, its speed, and its share of this machine's limit.

import { usersLimit } from "../../../../src/limits/serving.ts";
import type { BatchView, LimitsReport } from "../api-types.ts";

/** Routes that lines may be for. */
export const endpoints = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/responses",
  "/v1/embeddings",
] as const;

/** The number of lines that a server answers at a time. */
const linesAtOnce = 32;

const words: Readonly<Record<string, string>> = {
  validating: "Checking the file",
  in_progress: "Answering",
  finalizing: "Writing the files",
  completed: "Complete",
  failed: "Not begun: the file is wrong",
  expired: "Expired",
  cancelling: "Cancelling",
  cancelled: "Cancelled",
};

export function stateText({ status }: BatchView): string {
  return words[status] ?? status;
}

export function isOver({ status }: BatchView): boolean {
  return ["completed", "failed", "expired", "cancelled"].includes(status);
}

/** 0 to 1. */
export function shareOf({ request_counts: { total, completed, failed } }: BatchView): number {
  return total === 0 ? 0 : Math.min(1, (completed + failed) / total);
}

export interface BatchSpeed {
  /** Tokens per second since it began: of answers, or of texts if there are no answers. */
  readonly rate: number;
  /** The remaining time at this speed, in milliseconds; null: unknown, or the batch is done. */
  readonly leftMs: number | null;
}

/** null: it has no answer yet. */
export function speedOf(batch: BatchView, nowMs: number): BatchSpeed | null {
  const { in_progress_at: from, usage, request_counts: counts } = batch;
  const done = counts.completed + counts.failed;
  if (from === null || done === 0) return null;
  const end = batch.completed_at ?? batch.cancelled_at ?? batch.expired_at;
  const seconds = Math.max(1, (end ?? nowMs / 1000) - from);
  const tokens = usage.output_tokens > 0 ? usage.output_tokens : usage.input_tokens;
  const left = isOver(batch) ? null : ((counts.total - done) * seconds * 1000) / done;
  return { rate: tokens / seconds, leftMs: left };
}

/** The share of the limit that a speed reaches: the limit of as many answers of this length as are computed at a time; null: there is none. */
export function limitShare(
  { usage, request_counts: counts }: BatchView,
  rate: number,
  report: LimitsReport,
): number | null {
  const answers = counts.completed;
  const answerTokens = Math.round(usage.output_tokens / answers);
  if (answers === 0 || answerTokens < 2) return null;
  const computed = usage.input_tokens - usage.input_tokens_details.cached_tokens;
  const promptTokens = Math.max(1, Math.round(computed / answers));
  const { device, counting, cost, model } = report;
  const serving = { model: { cost, state: model.state }, device, counting, memoryBytes: undefined };
  const { tokensPerSecond } = usersLimit(serving, linesAtOnce, { promptTokens, answerTokens });
  return tokensPerSecond > 0 ? rate / tokensPerSecond : null;
}

/** The route of a file's first request; null: the file does not name it. */
export async function endpointOf(file: Blob): Promise<string | null> {
  const [line = ""] = (await file.slice(0, 1 << 20).text()).split("\n", 1);
  const found = /"url"\s*:\s*"(\/v1\/[a-z/]+)"/.exec(line)?.[1];
  return endpoints.find((known) => known === found) ?? null;
}
