// What is refused of the keys of recurrent architectures before anything is allocated for them.

import { expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { archNamed } from "../../src/models/table.ts";
import { type MetadataValue, plainMetadata, tinyMetadata } from "../support/tiny-engine.ts";

const f32 = dtypeByName("f32")!;

const experts = { expert_count: 4, expert_used_count: 2, expert_feed_forward_length: 16 };

function config(architecture: string, change: Record<string, MetadataValue>) {
  const own = Object.entries(change).map(([key, value]) => {
    return [`${architecture}.${key}`, value] as const;
  });
  const metadata = plainMetadata({ ...tinyMetadata(architecture), ...Object.fromEntries(own) });
  const table = { name: "token_embd.weight", shape: [48, 32], dtype: f32 };
  return archNamed(architecture).config({ metadata, tensors: new Map([[table.name, table]]) });
}

test.each<[string, Record<string, MetadataValue>, RegExp]>([
  ["mamba", { "ssm.conv_kernel": 1 }, /conv_kernel: got 1, expected at least 2/],
  ["mamba", { "ssm.inner_size": 0 }, /inner_size: got 0, expected an integer from 1/],
  ["mamba2", { "ssm.time_step_rank": 7 }, /time_step_rank: got 7, expected a divisor of .* 64/],
  ["mamba2", { "ssm.group_count": 3 }, /group_count: got 3, expected a divisor of .* 8/],
  ["falcon-h1", { "ssm.state_size": 0 }, /state_size: got 0, expected an integer from 1/],
  ["jamba", { "attention.head_count_kv": [0] }, /1 values, expected one for each of 2 layers/],
  ["jamba", { "attention.head_count_kv": [0, 3] }, /kv\[1\]: got 3, expected 0 or a divisor/],
  ["lfm2", { "shortconv.l_cache": 1 }, /l_cache: got 1, expected at least 2/],
  ["lfm2moe", { ...experts, expert_gating_func: 3 }, /got 3, expected 1 \(softmax\) or 2/],
  ["qwen35", { "ssm.state_size": 24 }, /state_size: got 24, expected 8/],
  ["qwen35", { nextn_predict_layers: 2 }, /nextn_predict_layers: got 2, expected an integer/],
  ["qwen35", { "rope.dimension_sections": [0, 0, 0, 0] }, /got 0,0,0,0, expected the pairs/],
  ["rwkv7", { "wkv.head_size": 5 }, /head_size: got 5, expected a divisor of .* 32/],
  ["rwkv6", { token_shift_count: 1 }, /token_shift_count: got 1, expected 2/],
])("%s: %o", (architecture, change, message) => {
  expect(() => config(architecture, change)).toThrow(message);
});
