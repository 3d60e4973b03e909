// kv_write: stores each token's keys and values in the paged cache, in the cache's type. Where it cannot hold a key or a value, the values
// beside them are stored as NaN: attention may take an infinite score for none at all, but not NaN for a number. So the logits are NaN,
// and engine/non-finite.ts finds the reason.

import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { nearestHalfText } from "./halves.ts";
import { type Kernel, makeKernel, perItem } from "./kernel.ts";
import { type KvFormat, type KvFormats, kvRowWords } from "./kv-format.ts";

export function kvWriteKernel(
  node: NodeOf<"kv_write">,
  { k: keyFormat, v: valueFormat }: KvFormats,
  batch: BatchLayout,
): Kernel {
  const { k, v, state } = node;
  const { cols } = k;
  const units = Math.max(k.cols / keyFormat.unit, v.cols / valueFormat.unit);
  const isSame = k.cols === v.cols && keyFormat === valueFormat;
  const functions = new Set([keyFormat, valueFormat].flatMap((each) => each.functions ?? []));
  return makeKernel({
    name: k.cols === v.cols ? `kv_write [${cols}]` : `kv_write [${k.cols}, ${v.cols}]`,
    bindings: [
      { name: "k", type: "f32", source: { kind: "value", value: k } },
      { name: "v", type: "f32", source: { kind: "value", value: v } },
      { name: "keys", type: "u32", source: { kind: "keys", state }, writes: true },
      { name: "values", type: "u32", source: { kind: "values", state }, writes: true },
      { name: "batch", type: "u32", source: { kind: "batch" } },
    ],
    declarations: `${cacheRowText(batch, state)}${nearestHalfText}${[...functions].join("")}`,
    rows: k.rows,
    grid: perItem(units),
    body: `
  let unit = group.x * 64u + lane;
  if (unit >= ${units}u) { return; }
  let token = group.y;
  let row = cacheRow(token, batch[${batch.positions}u + token]);
  ${
    isSame
      ? `${unitText(cols, keyFormat)}
  ${keyFormat.store("k", "keys", cols)}
  ${keyFormat.store("v", "values", cols)}
  ${spoilText(node, keyFormat, valueFormat)}`
      : `${apartText(k.cols, keyFormat, keyFormat.store("k", "keys", k.cols))}
  ${apartText(
    v.cols,
    valueFormat,
    `${valueFormat.store("v", "values", v.cols)}
  ${spoilText(node, keyFormat, valueFormat)}`,
  )}`
  }`,
  });
}

/** Spoils the unit of values that was stored, where that or the keys of this thread are beyond the type. */
function spoilText({ k, v }: NodeOf<"kv_write">, keys: KvFormat, values: KvFormat): string {
  const check = (name: string, { beyond, unit }: KvFormat, cols: number): string =>
    beyond === undefined
      ? ""
      : `for (var j = 0u; j < ${unit}u; j++) {
      let at = min(unit * ${unit}u, ${cols - unit}u) + j;
      isBeyond = isBeyond || abs(${name}[token * ${cols}u + at]) >= ${beyond}.0;
    }`;
  const checks = [check("k", keys, k.cols), check("v", values, v.cols)].filter((text) => text);
  if (checks.length === 0) return "";
  const word = values.spoiledWord?.(v.cols) ?? `unit * ${values.unitWords}u`;
  return `{
    var isBeyond = false;
    ${checks.join("\n    ")}
    if (isBeyond) { values[first + ${word}] = 0x7fc00000u; }
  }`;
}

/** Sets `first` and `source`. */
function unitText(cols: number, format: KvFormat): string {
  return `let first = row * ${kvRowWords(format, cols)}u;
  let source = token * ${cols}u + unit * ${format.unit}u;`;
}

/** Stores a unit, if there is one, where rows of keys and of values have different sizes. */
function apartText(cols: number, format: KvFormat, store: string): string {
  return `if (unit < ${cols / format.unit}u) {
  ${unitText(cols, format)}
  ${store}
  }`;
}

/** `fn cacheRow(token, position)`: the row of a position of that token's sequence in the cache of a state. */
export function cacheRowText(batch: BatchLayout, state: number): string {
  return `
fn cacheRow(token: u32, position: u32) -> u32 {
  let table = ${batch.tables[state]}u + batch[${batch.sequences}u + token] * ${batch.tableLength}u;
  return batch[table + position / ${KV_BLOCK_TOKENS}u] * ${KV_BLOCK_TOKENS}u + position % ${KV_BLOCK_TOKENS}u;
}`;
}
