// What the Batches page computes of a batch: its share, its speed, what is left, and the part of the limit that limits() gives.
// Held against: limits().

import { expect, test } from "vitest";
import type { BatchView, LimitsReport } from "../../apps/web/src/api-types.ts";
import { endpointOf, limitShare, shareOf, speedOf } from "../../apps/web/src/state/batches.ts";
import { limits } from "../../src/index.ts";

const batch: BatchView = {
  id: "batch_1",
  status: "in_progress",
  endpoint: "/v1/completions",
  model: null,
  errors: null,
  input_file_id: "file_1",
  output_file_id: null,
  error_file_id: null,
  created_at: 990,
  in_progress_at: 1000,
  completed_at: null,
  cancelled_at: null,
  expired_at: null,
  request_counts: { total: 100, completed: 20, failed: 5 },
  usage: {
    input_tokens: 20 * 100,
    input_tokens_details: { cached_tokens: 20 * 36 },
    output_tokens: 20 * 64,
  },
};

test("share, speed and what is left", () => {
  expect(shareOf(batch)).toBe(0.25);
  expect(speedOf(batch, 1_010_000)).toEqual({ rate: 128, leftMs: 30_000 });
  expect(speedOf({ ...batch, status: "completed", completed_at: 1020 }, 9e9)).toEqual({
    rate: 64,
    leftMs: null,
  });
  const embedded = { ...batch, usage: { ...batch.usage, output_tokens: 0 } };
  expect(speedOf(embedded, 1_010_000)?.rate).toBe(200);
  expect(speedOf({ ...batch, in_progress_at: null }, 1_010_000)).toBeNull();
  const begun = { ...batch, request_counts: { total: 100, completed: 0, failed: 0 } };
  expect(speedOf(begun, 1_010_000)).toBeNull();
});

test("the share of the limit is that of as many users with requests of this length", async () => {
  const asked = { device: "rtx4090", serving: { promptTokens: 64, answerTokens: 64, users: 32 } };
  const report = (await limits("qwen3-4b", asked)) as LimitsReport;
  const limit = report.serving!.rows.find(({ users }) => users === 32)!.tokensPerSecond;
  expect(limitShare(batch, limit / 4, report)).toBeCloseTo(0.25, 10);
  const embedded = { ...batch, usage: { ...batch.usage, output_tokens: 0 } };
  expect(limitShare(embedded, 100, report)).toBeNull();
});

test("the route of a file is that of its first line", async () => {
  const found = (text: string) => endpointOf(new Blob([text]));
  expect(await found('{"url": "/v1/embeddings"}\n{"url": "/v1/completions"}')).toBe(
    "/v1/embeddings",
  );
  expect(await found('{"url":"/v1/messages"}')).toBeNull();
  expect(await found("no JSON")).toBeNull();
  expect(await found("")).toBeNull();
});
