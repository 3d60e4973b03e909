// The check of a model's weights at load: one error that lists everything that is missing, misshapen, mistyped or
// unexpected, so that a wrong file is understood at once.

import { expect, test } from "vitest";
import { ModelError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { buildModel } from "../../src/models/build.ts";
import { tinyModel } from "../support/tiny-engine.ts";

function problemsOf(change: (tensors: Map<string, Weight>) => void): string[] {
  const { metadata, tensors } = tinyModel();
  const changed = new Map(tensors);
  change(changed);
  try {
    buildModel({ metadata, tensors: changed });
  } catch (error) {
    expect(error).toBeInstanceOf(ModelError);
    return (error as Error).message.split("\n  ").slice(1);
  }
  return [];
}

test("a complete model has no problems", () => {
  expect(problemsOf(() => {})).toEqual([]);
});

test("all problems of a file in one error", () => {
  const problems = problemsOf((tensors) => {
    const set = (name: string, facts: Partial<Weight>) =>
      tensors.set(name, { ...tensors.get(name)!, ...facts, name });
    tensors.delete("blk.0.attn_q.weight");
    tensors.delete("output_norm.weight");
    set("blk.1.ffn_up.weight", { shape: [3, 4] });
    set("blk.1.ffn_norm.weight", { dtype: dtypeByName("q8_0")! });
    set("blk.1.attn_norm.weight", { dtype: dtypeByName("bf16")! });
    set("blk.7.mystery.weight", { shape: [1], dtype: dtypeByName("f32")! });
  });
  expect(problems).toHaveLength(5);
  expect(problems).toContainEqual(
    expect.stringMatching(/^missing: blk\.0\.attn_q\.weight \[\d+, \d+\]$/),
  );
  expect(problems).toContainEqual(expect.stringMatching(/^missing: output_norm\.weight/));
  expect(problems).toContainEqual(
    expect.stringMatching(/^shape: blk\.1\.ffn_up\.weight is \[3, 4\], expected/),
  );
  expect(problems).toContain(
    "type: blk.1.ffn_norm.weight is q8_0, expected floats: it is a vector",
  );
  expect(problems).toContain("unexpected: blk.7.mystery.weight");
});

test("a file with hundreds of problems: the first, the last, and how many more", () => {
  const problems = problemsOf((tensors) => {
    for (let i = 0; i < 300; i++) {
      const name = `extra.${i}`;
      tensors.set(name, { name, shape: [1], dtype: dtypeByName("f32")! });
    }
  });
  expect(problems[0]).toBe("unexpected: extra.0");
  expect(problems).toContain("... and 260 more ...");
  expect(problems.at(-1)).toBe("unexpected: extra.299");
});
