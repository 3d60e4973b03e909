// ModelInfo is small: what several matmuls have in common is said once, and nothing is lost.

import { expect, it, onTestFinished } from "vitest";
import { shortNotes } from "../../src/engine/short-notes.ts";
import { open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";

it("names all matmuls of which a note says the same", () => {
  const notes = shortNotes([
    "2 threads",
    "q8_0 64 x 64, 2 threads:",
    "  16x12: the default",
    "blk.0.attn_q: q8_0, A",
    "q8_0 64 x 128, 2 threads:",
    "  16x12: the default",
    "q4_k 64 x 128, 2 threads (noise 1 %):",
    "  16x12: the default",
    "blk.0.ffn_up: q4_0, rows whose gate (blk.0.ffn_gate) is above zero",
    "blk.1.attn_q: q8_0, A",
    "blk.1.ffn_up: q4_0, rows whose gate (blk.1.ffn_gate) is above zero",
    "blk.1.ffn_down: q8_0, A",
    "blk.2.ffn_down: q8_0, A",
    "blk.4.ffn_down: q8_0, A",
    "blk.5.ffn_down: q8_0, B",
    "logits: q8_0, A",
  ]);
  expect(notes).toEqual([
    "2 threads",
    "q8_0 64 x 64, q8_0 64 x 128, 2 threads:",
    "  16x12: the default",
    "blk.*.attn_q, blk.1-2,4.ffn_down, logits: q8_0, A",
    "q4_k 64 x 128, 2 threads (noise 1 %):",
    "  16x12: the default",
    "blk.*.ffn_up: q4_0, rows whose gate (blk.*.ffn_gate) is above zero",
    "blk.5.ffn_down: q8_0, B",
  ]);
});

it("keeps the notes of two backends apart", () => {
  const lines = ["cpu", "webgpu"].flatMap((name) =>
    ["f32 8 x 8, 1 thread:", "  tile", "blk.0.attn_q: f32, A", "blk.1.attn_q: f32, A"].map(
      (line) => `${name}: ${line}`,
    ),
  );
  expect(shortNotes(lines)).toEqual(
    ["cpu", "webgpu"].flatMap((name) => [
      `${name}: f32 8 x 8, 1 thread:`,
      `${name}:   tile`,
      `${name}: blk.*.attn_q: f32, A`,
    ]),
  );
});

it.for([2, 24])("describes a model of %d layers in 4 kB", async (layers) => {
  const file = await tinyFile({ layers });
  onTestFinished(() => file.remove());
  await using model = await open(file.path, { threads: 1, contextSize: 64 });
  expect(JSON.stringify(model.info).length).toBeLessThan(4096);
  expect(model.info.backend.notes.join("\n")).toMatch(/blk\.\*\.attn_q, .*ffn_down/);
});
