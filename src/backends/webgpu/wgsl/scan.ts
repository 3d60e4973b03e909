// ssm_scan, delta_net and wkv. A workgroup computes 64 values (or channels) of a head of one sequence, token after token; a lane
// keeps its column of the state in its own memory meanwhile, and reads and writes the state of the sequence once. What all
// lanes read of a token (keys, queries, decays) is in workgroup memory.
//
// There is a workgroup for every row of the batch; only those of a sequence's first row have work to do.

import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import { type BatchLayout, SEGMENT_WORDS } from "../batch-area.ts";
import { type Binding, type Kernel, LANES, makeKernel } from "./kernel.ts";

/** NO_SLOT as an unsigned word. */
const NONE = "0xffffffffu";

/** The most floats of workgroup memory for a token: five vectors of keys fit every device's 16 KiB. */
export const MOST_KEYS = 512;

/** Storage buffers that every scan binds: the state, the batch, the result. */
export const SCAN_BUFFERS = 3;

const read = (name: string, value: Value): Binding => ({
  name,
  type: "f32",
  source: { kind: "value", value },
});
const vector = (name: string, weight: Weight): Binding => ({
  name,
  type: "f32",
  source: { kind: "weight", weight, part: 0 },
});

interface Scan {
  readonly name: string;
  readonly bindings: readonly Binding[];
  readonly state: number;
  readonly out: Value;
  readonly heads: number;
  /** Floats of a lane's column, and columns of a head. */
  readonly keys: number;
  readonly columns: number;
  /** WGSL of the index of key `j` of a head's state in column `column`. */
  readonly place: string;
  /** Vectors of `keys` floats that all lanes read, by name: WGSL of element `j` for token `row`. */
  readonly shared: Readonly<Record<string, string>>;
  /** WGSL for each token: reads `row`, `head`, `column`, `own` (the value's index) and `held` (its column), and adds to `sum`. */
  readonly token: string;
}

function scanKernel(scan: Scan, batch: BatchLayout): Kernel {
  const { heads, keys, columns, shared, out } = scan;
  const pieces = Math.ceil(columns / LANES);
  const size = keys * columns;
  const names = Object.keys(shared);
  return makeKernel({
    name: scan.name,
    bindings: [
      ...scan.bindings,
      { name: "kept", type: "f32", source: { kind: "recurrent", state: scan.state }, writes: true },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    declarations: names.map((name) => `var<workgroup> ${name}: array<f32, ${keys}>;`).join("\n"),
    rows: out.rows,
    grid: (rows) => [heads * pieces, rows, 1],
    body: `
  let sequence = batch[${batch.sequences}u + group.y];
  let segment = ${batch.segments}u + sequence * ${SEGMENT_WORDS}u;
  if (batch[segment] != group.y) { return; }
  let oldSlot = batch[segment + 1u];
  let newSlot = batch[segment + 2u];
  let head = group.x / ${pieces}u;
  let column = group.x % ${pieces}u * ${LANES}u + lane;
  let exists = column < ${columns}u;
  var held: array<f32, ${keys}>;
  for (var j = 0u; j < ${keys}u; j++) {
    held[j] = 0.0;
    if (exists && oldSlot != ${NONE}) { held[j] = kept[oldSlot * ${heads * size}u + head * ${size}u + ${scan.place}]; }
  }
  for (var row = group.y; row < batch[0] && batch[${batch.sequences}u + row] == sequence; row++) {${
    names.length === 0
      ? ""
      : `
    workgroupBarrier();
    for (var j = lane; j < ${keys}u; j += ${LANES}u) {
      ${names.map((name) => `${name}[j] = ${shared[name]};`).join("\n      ")}
    }
    workgroupBarrier();`
  }
    if (exists) {
      let own = row * ${heads * columns}u + head * ${columns}u + column;
      var sum = 0.0;${scan.token}
      result[own] = sum;
    }
  }
  if (exists && newSlot != ${NONE}) {
    for (var j = 0u; j < ${keys}u; j++) { kept[newSlot * ${heads * size}u + head * ${size}u + ${scan.place}] = held[j]; }
  }`,
  });
}

/** e^x, where a large -x gives 0 on every device. */
const decayOf = (x: string): string => `exp(clamp(${x}, -80.0, 88.0))`;

export function ssmScanKernel(node: NodeOf<"ssm_scan">, batch: BatchLayout): Kernel {
  const { x, dt, b, c, a, skip, states, state, out } = node;
  const heads = dt.cols;
  const groups = b.cols / states;
  const bindings = [read("x", x), read("dt", dt), read("b", b), read("c", c)];
  const weights = [vector("a", a), vector("skip", skip)];
  if (a.shape.length === 2) {
    // A head of one column would leave all other lanes idle: all channels are the columns of one head.
    return scanKernel(
      {
        name: `ssm_scan [${heads}, ${states}]`,
        bindings: [...bindings, ...weights],
        state,
        out,
        heads: 1,
        keys: states,
        columns: heads,
        place: `column * ${states}u + j`,
        shared: { keys: `b[row * ${states}u + j]`, queries: `c[row * ${states}u + j]` },
        token: `
      let step = dt[own];
      let value = x[own];
      for (var j = 0u; j < ${states}u; j++) {
        held[j] = held[j] * ${decayOf(`step * a[column * ${states}u + j]`)} + keys[j] * step * value;
        sum += held[j] * queries[j];
      }
      sum += skip[column] * value;`,
      },
      batch,
    );
  }
  const columns = x.cols / heads;
  const key = `(row * ${groups}u + head / ${heads / groups}u) * ${states}u + j`;
  return scanKernel(
    {
      name: `ssm_scan [${heads}, ${states}, ${columns}]`,
      bindings: [...bindings, ...weights],
      state,
      out,
      heads,
      keys: states,
      columns,
      place: `j * ${columns}u + column`,
      shared: { keys: `b[${key}]`, queries: `c[${key}]` },
      token: `
      let step = dt[row * ${heads}u + head];
      let decay = ${decayOf("step * a[head]")};
      let value = x[own];
      for (var j = 0u; j < ${states}u; j++) {
        held[j] = held[j] * decay + keys[j] * step * value;
        sum += held[j] * queries[j];
      }
      sum += skip[head] * value;`,
    },
    batch,
  );
}

export function deltaNetKernel(node: NodeOf<"delta_net">, batch: BatchLayout): Kernel {
  const { q, k, v, dt, beta, a, keyHeads, tiled, state, out } = node;
  const heads = beta.cols;
  const [keys, columns] = [k.cols / keyHeads, v.cols / heads];
  const keyHead = tiled ? `head % ${keyHeads}u` : `head / ${heads / keyHeads}u`;
  const key = `(row * ${keyHeads}u + ${keyHead}) * ${keys}u + j`;
  const step =
    dt.cols === heads ? `row * ${heads}u + head` : `(row * ${heads}u + head) * ${keys}u + j`;
  return scanKernel(
    {
      name: `delta_net [${heads}, ${keys}, ${columns}]${dt.cols === heads ? "" : " with decays of keys"}`,
      bindings: [
        ...[read("q", q), read("k", k), read("v", v), read("dt", dt), read("beta", beta)],
        vector("a", a),
      ],
      state,
      out,
      heads,
      keys,
      columns,
      place: `j * ${columns}u + column`,
      shared: {
        keys: `k[${key}]`,
        queries: `q[${key}]`,
        decays: decayOf(`a[head] * dt[${step}]`),
      },
      token: `
      var known = 0.0;
      for (var j = 0u; j < ${keys}u; j++) {
        held[j] *= decays[j];
        known += held[j] * keys[j];
      }
      let delta = (v[own] - known) * beta[row * ${heads}u + head];
      for (var j = 0u; j < ${keys}u; j++) {
        held[j] += keys[j] * delta;
        sum += held[j] * queries[j];
      }`,
    },
    batch,
  );
}

export function wkvKernel(node: NodeOf<"wkv">, batch: BatchLayout): Kernel {
  const { r, w, k, v, a, b, bonus, heads, state, out } = node;
  const size = v.cols / heads;
  const place = `row * ${v.cols}u + head * ${size}u + j`;
  const shared = { keys: `k[${place}]`, queries: `r[${place}]`, decays: `w[${place}]` };
  const values = [read("r", r), read("w", w), read("k", k), read("v", v)];
  const common = {
    state,
    out,
    heads,
    keys: size,
    columns: size,
    place: `j * ${size}u + column`,
  };
  if (bonus) {
    return scanKernel(
      {
        ...common,
        name: `wkv with bonus [${heads}, ${size}]`,
        bindings: [...values, vector("bonus", bonus)],
        shared,
        token: `
      let value = v[own];
      for (var j = 0u; j < ${size}u; j++) {
        let added = keys[j] * value;
        sum += queries[j] * (held[j] + bonus[head * ${size}u + j] * added);
        held[j] = held[j] * decays[j] + added;
      }`,
      },
      batch,
    );
  }
  return scanKernel(
    {
      ...common,
      name: `wkv with removal [${heads}, ${size}]`,
      bindings: [...values, read("a", a!), read("b", b!)],
      shared: { ...shared, removals: `a[${place}]`, factors: `b[${place}]` },
      token: `
      let value = v[own];
      var removed = 0.0;
      for (var j = 0u; j < ${size}u; j++) { removed += removals[j] * held[j]; }
      for (var j = 0u; j < ${size}u; j++) {
        held[j] = held[j] * decays[j] + keys[j] * value + removed * factors[j];
        sum += held[j] * queries[j];
      }`,
    },
    batch,
  );
}
