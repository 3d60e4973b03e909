// Builds a graph, one call per op, and checks every shape: a wrong one fails where the model is written, not where it runs.
// An architecture's forward() reads as its paper:
//   const q = g.matmul(a, w.get("blk.0.attn_q.weight"), "attn_q"); // [tokens, heads * headDim]

import { ModelError } from "../base/errors.ts";
import { dtypeByName } from "../dtypes/table.ts";
import {
  type Activation,
  adapterOf,
  type BatchRows,
  type DeclaredState,
  type GateActivation,
  type Graph,
  type GraphNode,
  type KvState,
  type LayerState,
  type OpKind,
  type OpTable,
  type Outputs,
  type Rope,
  type Routing,
  type Rows,
  type Value,
  type Weight,
  weightsOf,
} from "./graph.ts";

export interface AttentionOptions {
  readonly state: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Default: headDim. */
  readonly vHeadDim?: number;
  readonly scale: number;
  readonly softcap?: number | undefined;
  /** Default: true. */
  readonly causal?: boolean;
  readonly sinks?: Weight | undefined;
  readonly alibi?: Weight | undefined;
  /** See OpTable: either both, or none. */
  readonly bias?: Weight | undefined;
  readonly buckets?: Weight | undefined;
}

export class GraphBuilder {
  readonly #nodes: GraphNode[] = [];
  readonly #weights = new Map<string, Weight>();
  readonly #constants = new Map<string, Weight>();
  readonly #states: LayerState[] = [];
  /** The window of each group of KV states. */
  readonly #windows: (number | undefined)[] = [];
  readonly #layerStarts: number[] = [];
  #values = 0;
  #adapters = 0;
  #input: Value | undefined;
  #prefix = "";

  /** Begins a layer: names start with "blk.<layer>." from here on. undefined: the layers end and the output begins. */
  layer(index: number | undefined): void {
    this.#layerStarts.push(this.#nodes.length);
    this.#prefix = index === undefined ? "" : `blk.${index}.`;
  }

  /** Numbers that are not in the file, as a vector or in another shape; the same name is the same weight. */
  constant(name: string, values: Float32Array, shape: readonly number[] = [values.length]): Weight {
    const known = this.#constants.get(name);
    if (known) return known;
    const weight = { name, shape, dtype: dtypeByName("f32")!, source: { values } };
    this.#constants.set(name, weight);
    return weight;
  }

  /** Rows that come with the batch (Graph.input): [tokens, cols]. */
  input(cols: number, name: string): Value {
    if (this.#input) throw new Error(`graph: ${name}: a graph has one input`);
    this.#input = { id: this.#values++, name, rows: "tokens", cols };
    return this.#input;
  }

  /** `substitutes`: see OpTable. */
  embed(table: Weight, name: string, substitutes?: readonly number[]): Value {
    const rows = matrixRows(table);
    const outside = substitutes?.find((row) => !Number.isInteger(row) || row < 0 || row >= rows);
    if (outside !== undefined) {
      throw new ModelError(
        `graph: ${this.#prefix}${name}: got token ${outside}, expected one of the ${rows} of ${table.name}`,
      );
    }
    const operands = { table, by: "token", substitutes } as const;
    return this.#push("embed", operands, name, "tokens", matrixCols(table));
  }

  /** Learned positions: a row of the table for each. */
  embedPositions(table: Weight, name: string): Value {
    const operands = { table, by: "position", substitutes: undefined } as const;
    return this.#push("embed", operands, name, "tokens", matrixCols(table));
  }

  rmsNorm(x: Value, weight: Weight, eps: number, name: string): Value {
    const size = vectorSize(weight);
    if (x.cols % size !== 0) this.#mismatch(name, `norm of ${size} values`, x);
    return this.#push("rms_norm", { x, weight, eps }, name, x.rows, x.cols);
  }

  layerNorm(x: Value, weight: Weight, bias: Weight | undefined, eps: number, name: string): Value {
    const size = vectorSize(weight);
    if (x.cols % size !== 0) this.#mismatch(name, `norm of ${size} values`, x);
    if (bias && vectorSize(bias) !== size) throw notA(`vector of ${size}`, bias);
    return this.#push("layer_norm", { x, weight, bias, eps }, name, x.rows, x.cols);
  }

  matmul(x: Value, weight: Weight, name: string, bias?: Weight): Value {
    return this.#matmul(x, weight, name, bias, x.rows);
  }

  /** The output matrix, which a batch without logits skips: [outputs, n] -> [logits, vocab] */
  logits(x: Value, weight: Weight, name: string, bias?: Weight): Value {
    if (x.rows !== "outputs") this.#mismatch(name, "[outputs, n]", x);
    return this.#matmul(x, weight, name, bias, "logits");
  }

  #matmul(x: Value, weight: Weight, name: string, bias: Weight | undefined, rows: Rows): Value {
    const [outputs, inputs] = [matrixRows(weight), matrixCols(weight)];
    if (inputs !== x.cols) this.#mismatch(name, `${weight.name} [${outputs}, ${inputs}]`, x);
    if (bias && vectorSize(bias) !== outputs) {
      throw new ModelError(
        `${bias.name} has ${vectorSize(bias)} values, ${weight.name} ${outputs}`,
      );
    }
    return this.#push("matmul", { x, weight, bias }, name, rows, outputs);
  }

  /**
   * [tokens, experts] -> [tokens, 2 * used]: ids, then weights. `bias`: [experts], added for the choice only; `scales`:
   * [experts], factors on the weights.
   */
  route(logits: Value, routing: Routing, name: string, bias?: Weight, scales?: Weight): Value {
    const { used } = routing;
    if (!Number.isInteger(used) || used < 1 || used > logits.cols) {
      throw new ModelError(
        `graph: ${this.#prefix}${name}: ${used} of ${logits.cols} experts are used, expected 1 to ${logits.cols}`,
      );
    }
    if (routing.gating === "all" && used !== logits.cols) {
      throw new ModelError(
        `graph: ${this.#prefix}${name}: ${used} of ${logits.cols} experts are used, expected all`,
      );
    }
    const { groups, sharing = 1 } = routing;
    const canShare = !scales && routing.gating !== "softmax_chosen" && routing.gating !== "all";
    if (!Number.isInteger(logits.cols / sharing) || sharing < 1 || (sharing > 1 && !canShare)) {
      throw new ModelError(
        `graph: ${this.#prefix}${name}: ${sharing} of ${logits.cols} experts cannot share a matrix`,
      );
    }
    const groupSize = logits.cols / (groups?.count ?? 1);
    const isFitting =
      !groups || (Number.isInteger(groupSize) && groupSize >= 2 && groups.used * groupSize >= used);
    if (!isFitting || (groups && groups.used > groups.count)) {
      throw new ModelError(
        `graph: ${this.#prefix}${name}: ${used} of ${logits.cols} experts from ${groups?.used} of ${groups?.count} groups do not fit together`,
      );
    }
    for (const [what, own] of [["a bias", bias] as const, ["factors", scales] as const]) {
      if (!own || vectorSize(own) === logits.cols) continue;
      this.#mismatch(name, `${what} of ${vectorSize(own)}`, logits);
    }
    return this.#push("route", { logits, bias, scales, routing }, name, logits.rows, 2 * used);
  }

  /** [tokens, inputs] or [tokens, used * inputs] -> [tokens, used * outputs]. `bias`: [experts, outputs]. */
  matmulId(x: Value, routes: Value, weight: Weight, name: string, bias?: Weight): Value {
    const [experts, outputs, inputs] = expertShape(weight);
    const used = routes.cols / 2;
    if (routes.rows !== x.rows)
      this.#mismatch(name, `[${routes.rows}, ${routes.cols}] of routes`, x);
    if (x.cols !== inputs && x.cols !== used * inputs) {
      this.#mismatch(
        name,
        `${weight.name} [${experts}, ${outputs}, ${inputs}] in ${used} slots`,
        x,
      );
    }
    const flat = bias && flatBias(bias, experts, outputs);
    const operands = { x, routes, weight, bias: flat };
    return this.#push("matmul_id", operands, name, x.rows, used * outputs);
  }

  /** The weighted sum of a token's slots: [tokens, used * n] -> [tokens, n]. */
  combine(x: Value, routes: Value, name: string): Value {
    const used = routes.cols / 2;
    if (x.cols % used !== 0 || x.rows !== routes.rows) this.#mismatch(name, `${used} slots`, x);
    return this.#push("combine", { x, routes }, name, x.rows, x.cols / used);
  }

  rope(x: Value, headDim: number, rope: Rope, name: string, factors?: Weight): Value {
    if (x.cols % headDim !== 0) this.#mismatch(name, `heads of ${headDim}`, x);
    if (rope.dims > headDim || rope.frequencies.length !== rope.dims / 2) {
      throw new ModelError(
        `rope of ${rope.dims} values with ${rope.frequencies.length} frequencies in heads of ${headDim}`,
      );
    }
    return this.#push("rope", { x, headDim, rope, factors }, name, x.rows, x.cols);
  }

  /** Declares the state that a layer keeps between batches; returns its index, by which ops name it. */
  state(state: DeclaredState): number {
    if (state.kind === "recurrent") {
      const { layer, floats } = state;
      if (Number.isSafeInteger(floats) && floats > 0) return this.#states.push(state) - 1;
      throw new ModelError(
        `graph: layer ${layer}: got recurrent state of ${floats} floats, expected an integer from 1`,
      );
    }
    const { window } = state;
    if (window !== undefined && (!Number.isSafeInteger(window) || window < 1)) {
      throw new ModelError(
        `graph: layer ${state.layer}: got a window of ${window} tokens, expected an integer from 1`,
      );
    }
    const known = this.#windows.indexOf(window);
    const group = known >= 0 ? known : this.#windows.push(window) - 1;
    return this.#states.push({ ...state, group }) - 1;
  }

  /** `what`: for a layer that has several caches. */
  kvWrite(k: Value, v: Value, state: number, what = "kv"): void {
    const { kCols, vCols } = this.#kvState(state);
    if (k.cols !== kCols) this.#mismatch("kv", `a cache of keys of ${kCols} values`, k);
    if (v.cols !== vCols) this.#mismatch("kv", `a cache of values of ${vCols} values`, v);
    const name = this.#prefix + what;
    this.#nodes.push({ op: "kv_write", k, v, state, name, out: undefined });
  }

  /** [tokens, heads * headDim] -> [tokens, heads * vHeadDim] */
  attention(q: Value, options: AttentionOptions, name: string): Value {
    const { state, heads, kvHeads, headDim, vHeadDim = headDim, scale, softcap } = options;
    const { causal = true, sinks, alibi, bias, buckets } = options;
    if (q.cols !== heads * headDim) this.#mismatch(name, `${heads} heads of ${headDim}`, q);
    const { kCols, vCols, window, chunked = false } = this.#kvState(state);
    const isFitting = kvHeads * headDim === kCols && kvHeads * vHeadDim === vCols;
    if (!isFitting || heads % kvHeads !== 0) {
      throw new ModelError(
        `attention: ${heads} heads over ${kvHeads} KV heads of ${headDim} and ${vHeadDim} do not fit a cache of ${kCols} and ${vCols} values`,
      );
    }
    this.#checkPositive(name, "scale", scale);
    if (softcap !== undefined) this.#checkPositive(name, "softcap", softcap);
    for (const perHead of [sinks, alibi]) {
      if (!perHead || vectorSize(perHead) === heads) continue;
      throw new ModelError(
        `graph: ${this.#prefix}${name}: ${perHead.name} has ${vectorSize(perHead)} values, expected one for each of ${heads} heads`,
      );
    }
    if (bias || buckets) this.#checkBias(name, bias, buckets, heads);
    const shape = { q, state, heads, kvHeads, headDim, vHeadDim, scale };
    if (chunked && !causal) {
      throw new ModelError(`graph: ${this.#prefix}${name}: attention within chunks must be causal`);
    }
    const operands = { ...shape, window, chunked, softcap, causal, sinks, alibi, bias, buckets };
    return this.#push("attention", operands, name, q.rows, heads * vHeadDim);
  }

  /** q: [tokens, heads * headDim], weights: [tokens, heads] -> [tokens, context]. */
  indexScores(operands: OpTable["index_scores"], context: number, name: string): Value {
    const { q, weights, state, heads } = operands;
    const { kCols, vCols, window } = this.#kvState(state);
    const fits = weights.cols === heads && q.cols === heads * (kCols + vCols) && kCols === vCols;
    if (!fits || window !== undefined || kCols % 4 !== 0) {
      throw new ModelError(
        `graph: ${this.#prefix}${name}: ${heads} heads of ${q.cols} values and ${weights.cols} weights do not fit a cache of ${kCols} and ${vCols} values`,
      );
    }
    return this.#push("index_scores", operands, name, q.rows, context);
  }

  /** [tokens, context] -> [tokens, most] */
  topK(x: Value, most: number, name: string): Value {
    if (x.rows !== "tokens" || most < 1 || most > x.cols)
      this.#mismatch(name, `${most} of them`, x);
    return this.#push("top_k", { x }, name, x.rows, most);
  }

  /** [tokens, heads * headDim] -> [tokens, heads * vHeadDim], over the positions of `chosen`. */
  sparseAttention(q: Value, chosen: Value, options: AttentionOptions, name: string): Value {
    const { state, heads, kvHeads, headDim, vHeadDim = headDim, scale } = options;
    const { kCols, vCols, window } = this.#kvState(state);
    const fits =
      q.cols === heads * headDim &&
      kvHeads * headDim === kCols &&
      kvHeads * vHeadDim === vCols &&
      heads % kvHeads === 0 &&
      chosen.rows === q.rows;
    if (!fits || window !== undefined) {
      this.#mismatch(name, `${heads} heads over ${kvHeads} KV heads of ${headDim}`, q);
    }
    this.#checkPositive(name, "scale", scale);
    const operands = { q, chosen, state, heads, kvHeads, headDim, vHeadDim, scale };
    return this.#push("sparse_attention", operands, name, q.rows, heads * vHeadDim);
  }

  #checkBias(
    name: string,
    bias: Weight | undefined,
    buckets: Weight | undefined,
    heads: number,
  ): void {
    const [values, distances] = [bias && vectorSize(bias), buckets && vectorSize(buckets)];
    if (values !== undefined && values % heads === 0 && distances && distances % 2 === 1) return;
    throw new ModelError(
      `graph: ${this.#prefix}${name}: got a bias of ${values} values and ${distances} distances, expected values for each of ${heads} heads and an odd number of distances`,
    );
  }

  #checkPositive(name: string, what: string, value: number): void {
    if (value > 0 && Number.isFinite(Math.fround(value))) return;
    throw new ModelError(
      `graph: ${this.#prefix}${name}: got a ${what} of ${value}, expected a finite number above 0`,
    );
  }

  /** weight: [cols, K]; state: a RecurrentState of (K - 1) * cols floats. */
  shortConv(x: Value, weight: Weight, state: number, name: string, bias?: Weight): Value {
    const [cols, taps] = [matrixRows(weight), matrixCols(weight)];
    if (x.rows !== "tokens" || cols !== x.cols) this.#mismatch(name, `[tokens, ${cols}]`, x);
    if (bias && vectorSize(bias) !== cols) throw notA(`vector of ${cols}`, bias);
    const kept = this.#states[state];
    const floats = (taps - 1) * cols;
    if (taps < 2 || kept?.kind !== "recurrent" || kept.floats !== floats) {
      const got = kept?.kind === "recurrent" ? `${kept.floats} floats` : "no recurrent state";
      throw new ModelError(
        `graph: ${this.#prefix}${name}: ${weight.name} [${cols}, ${taps}] needs at least 2 taps and a state of ${floats} floats, got ${got}`,
      );
    }
    return this.#push("short_conv", { x, weight, bias, state }, name, x.rows, x.cols);
  }

  /** x: [tokens, heads * headDim]; a: [heads, N] or [heads]; b, c: [tokens, groups * N]. */
  ssmScan(operands: OpTable["ssm_scan"], name: string): Value {
    const { x, dt, b, c, a, skip, states, state } = operands;
    const heads = dt.cols;
    const isMatrix = a.shape.length === 2;
    const kept = this.#recurrentFloats(state, name);
    const [headDim, groups] = [x.cols / heads, b.cols / states];
    const fits =
      [x, dt, b, c].every(({ rows }) => rows === "tokens") &&
      a.shape[0] === heads &&
      (!isMatrix || a.shape[1] === states) &&
      vectorSize(skip) === heads &&
      (isMatrix ? headDim === 1 : Number.isInteger(headDim)) &&
      b.cols === c.cols &&
      Number.isInteger(groups) &&
      heads % groups === 0 &&
      kept === x.cols * states;
    if (!fits) {
      const sizes = `x ${x.cols}, dt ${heads}, b ${b.cols}, c ${c.cols}, a [${a.shape}], skip [${skip.shape}], ${kept} floats`;
      throw new ModelError(
        `graph: ${this.#prefix}${name}: a scan of ${sizes} of state does not fit together`,
      );
    }
    return this.#push("ssm_scan", operands, name, x.rows, x.cols);
  }

  /** q, k: [tokens, keyHeads * keyDim]; v: [tokens, heads * vDim]; beta: [tokens, heads]. */
  deltaNet(operands: OpTable["delta_net"], name: string): Value {
    const { q, k, v, dt, beta, a, keyHeads, state } = operands;
    const heads = beta.cols;
    const [keyDim, vDim] = [k.cols / keyHeads, v.cols / heads];
    const kept = this.#recurrentFloats(state, name);
    const fits =
      [q, k, v, dt, beta].every(({ rows }) => rows === "tokens") &&
      q.cols === k.cols &&
      Number.isInteger(keyDim) &&
      Number.isInteger(vDim) &&
      (dt.cols === heads || dt.cols === heads * keyDim) &&
      vectorSize(a) === heads &&
      heads % keyHeads === 0 &&
      kept === heads * keyDim * vDim;
    if (!fits) {
      const sizes = `q ${q.cols}, k ${k.cols}, v ${v.cols}, dt ${dt.cols}, beta ${heads}, a [${a.shape}], ${keyHeads} key heads, ${kept} floats`;
      throw new ModelError(
        `graph: ${this.#prefix}${name}: a delta rule of ${sizes} of state does not fit together`,
      );
    }
    return this.#push("delta_net", operands, name, v.rows, v.cols);
  }

  /** All operands: [tokens, heads * n]. Either a bonus (RWKV 6), or a and b (RWKV 7). */
  wkv(operands: OpTable["wkv"], name: string): Value {
    const { r, w, k, v, a, b, bonus, heads, state } = operands;
    const size = v.cols / heads;
    const kept = this.#recurrentFloats(state, name);
    const values = [r, w, k, v, ...(a ? [a] : []), ...(b ? [b] : [])];
    const fits =
      values.every(({ rows, cols }) => rows === "tokens" && cols === v.cols) &&
      Number.isInteger(size) &&
      kept === heads * size * size &&
      (bonus ? !a && !b && vectorSize(bonus) === v.cols : a !== undefined && b !== undefined);
    if (!fits) {
      const sizes = values.map(({ cols }) => cols).join(", ");
      throw new ModelError(
        `graph: ${this.#prefix}${name}: a time mix of ${sizes} columns, ${heads} heads and ${kept} floats of state does not fit together`,
      );
    }
    return this.#push("wkv", operands, name, v.rows, v.cols);
  }

  /** `count` columns from `from` on of each of `groups` equal groups of columns: [n, cols] -> [n, groups * count]. */
  slice(x: Value, from: number, count: number, name: string, groups = 1): Value {
    const size = x.cols / groups;
    if (!Number.isInteger(size) || from < 0 || count < 1 || from + count > size) {
      this.#mismatch(name, `columns ${from} to ${from + count - 1} of ${groups} groups`, x);
    }
    return this.#push("slice", { x, groups, from }, name, x.rows, groups * count);
  }

  /** [n, groups * x] and [n, groups * y] -> [n, groups * (x + y)]: of each group, a's columns and then b's. */
  concat(a: Value, b: Value, name: string, groups = 1): Value {
    if (a.rows !== b.rows || a.cols % groups !== 0 || b.cols % groups !== 0) {
      this.#mismatch(name, `[${a.rows}, ${a.cols}] in ${groups} groups`, b);
    }
    return this.#push("concat", { a, b, groups }, name, a.rows, a.cols + b.cols);
  }

  #recurrentFloats(state: number, name: string): number {
    const kept = this.#states[state];
    if (kept?.kind === "recurrent") return kept.floats;
    throw new ModelError(
      `graph: ${this.#prefix}${name}: state ${state} is ${kept?.kind ?? "not there"}, expected recurrent state`,
    );
  }

  #kvState(index: number): KvState {
    const state = this.#states[index];
    if (state?.kind === "kv") return state;
    throw new ModelError(
      `graph: state ${index} is ${state?.kind ?? "not there"}, expected a KV cache`,
    );
  }

  gate(gate: Value, up: Value, activation: GateActivation, name: string): Value {
    const isOfRows = gate.cols === 1 && activation !== "swiglu_oai";
    const fits = gate.rows === up.rows && (gate.cols === up.cols || isOfRows);
    if (!fits) this.#mismatch(name, `a gate of [${gate.rows}, ${gate.cols}]`, up);
    return this.#push("gate", { gate, up, activation }, name, up.rows, up.cols);
  }

  activate(x: Value, activation: Activation, name: string): Value {
    return this.#push("activate", { x, activation }, name, x.rows, x.cols);
  }

  add(a: Value, b: Value, name: string): Value {
    if (a.cols !== b.cols || a.rows !== b.rows) this.#mismatch(name, `[${a.rows}, ${a.cols}]`, b);
    return this.#push("add", { a, b }, name, a.rows, a.cols);
  }

  mul(a: Value, b: Value, name: string): Value {
    const fits = a.rows === b.rows && (a.cols === b.cols || b.cols === 1);
    if (!fits) this.#mismatch(name, `[${a.rows}, ${a.cols}]`, b);
    return this.#push("mul", { a, b }, name, a.rows, a.cols);
  }

  /** weight: [cols]. */
  addWeight(x: Value, weight: Weight, name: string): Value {
    if (vectorSize(weight) !== x.cols) this.#mismatch(name, `${weight.name} [${weight.shape}]`, x);
    return this.#push("add_weight", { x, weight }, name, x.rows, x.cols);
  }

  scale(x: Value, factor: number, name: string): Value {
    return this.#push("scale", { x, factor }, name, x.rows, x.cols);
  }

  /** weight: as long as a row, as a part of it that repeats, or one value. */
  mulWeight(x: Value, weight: Weight, name: string): Value {
    const size = vectorSize(weight);
    if (x.cols % size !== 0) this.#mismatch(name, `a weight of ${size} values`, x);
    return this.#push("mul_weight", { x, weight }, name, x.rows, x.cols);
  }

  clamp(x: Value, limit: number, name: string): Value {
    this.#checkPositive(name, "limit", limit);
    return this.#push("clamp", { x, limit }, name, x.rows, x.cols);
  }

  xielu(x: Value, parameters: Omit<OpTable["xielu"], "x">, name: string): Value {
    return this.#push("xielu", { x, ...parameters }, name, x.rows, x.cols);
  }

  temperature(x: Value, parameters: Omit<OpTable["temperature"], "x">, name: string): Value {
    if (x.rows !== "tokens") this.#mismatch(name, "[tokens, n]", x);
    this.#checkPositive(name, "span", parameters.span);
    return this.#push("temperature", { x, ...parameters }, name, x.rows, x.cols);
  }

  softcap(x: Value, cap: number, name: string): Value {
    return this.#push("softcap", { x, cap }, name, x.rows, x.cols);
  }

  softmax(x: Value, name: string): Value {
    return this.#push("softmax", { x }, name, x.rows, x.cols);
  }

  /** Keeps the rows that are outputs: [tokens, n] -> [outputs, n] */
  select(x: Value, name: string): Value {
    if (x.rows !== "tokens") this.#mismatch(name, "[tokens, n]", x);
    return this.#push("select", { x }, name, "outputs", x.cols);
  }

  /** Keeps the rows that use an adapter: [rows, n] -> [rows@adapter, n]. `rows`: default: those of x. */
  gather(x: Value, adapter: number, name: string, rows: Rows = x.rows): Value {
    if (adapterOf(rows)) this.#mismatch(name, "rows that are of no adapter", x);
    this.#adapters = Math.max(this.#adapters, adapter + 1);
    return this.#push("gather", { x }, name, `${rows as BatchRows}@${adapter}`, x.cols);
  }

  /** [rows, n] and [rows@adapter, n] -> [rows, n] */
  adapt(base: Value, x: Value, factor: number, name: string): Value {
    const fits = adapterOf(x.rows)?.rows === base.rows && x.cols === base.cols;
    if (!fits) this.#mismatch(name, `[${base.rows}, ${base.cols}]`, x);
    return this.#push("adapt", { base, x, factor }, name, base.rows, base.cols);
  }

  finish(outputs: Outputs): Graph {
    return {
      nodes: this.#nodes,
      weights: [...this.#weights.values()],
      states: this.#states,
      layerStarts: this.#layerStarts,
      ...(this.#input && { input: this.#input }),
      ...(this.#adapters > 0 && { adapters: this.#adapters }),
      outputs,
    };
  }

  #push<K extends Exclude<OpKind, "kv_write">>(
    op: K,
    operands: OpTable[K],
    name: string,
    rows: Rows,
    cols: number,
  ): Value {
    const fullName = this.#prefix + name;
    const out: Value = { id: this.#values++, name: fullName, rows, cols };
    const node = { op, ...operands, name: fullName, out } as unknown as GraphNode;
    this.#nodes.push(node);
    for (const weight of weightsOf(node)) this.#weights.set(weight.name, weight);
    return out;
  }

  #mismatch(name: string, expected: string, got: Value): never {
    throw new ModelError(
      `graph: ${this.#prefix}${name}: operand "${got.name}" is [${got.rows}, ${got.cols}], which does not fit ${expected}`,
    );
  }
}

function matrixRows(weight: Weight): number {
  if (weight.shape.length !== 2) throw notA("matrix", weight);
  return weight.shape[0]!;
}

function matrixCols(weight: Weight): number {
  if (weight.shape.length !== 2) throw notA("matrix", weight);
  return weight.shape[1]!;
}

function vectorSize(weight: Weight): number {
  if (weight.shape.length !== 1) throw notA("vector", weight);
  return weight.shape[0]!;
}

function expertShape(weight: Weight): [experts: number, outputs: number, inputs: number] {
  if (weight.shape.length !== 3) throw notA("matrix for each expert", weight);
  return [weight.shape[0]!, weight.shape[1]!, weight.shape[2]!];
}

/** The biases of all experts one after the other, as one vector. */
function flatBias(bias: Weight, experts: number, outputs: number): Weight {
  const { shape, dtype } = bias;
  const fits = shape.length === 2 && shape[0] === experts && shape[1] === outputs;
  if (fits && dtype.blockElems === 1) return { ...bias, shape: [experts * outputs] };
  throw new ModelError(
    `graph: ${bias.name} is ${dtype.name} [${shape}], expected floats [${experts}, ${outputs}]`,
  );
}

function notA(what: string, weight: Weight): ModelError {
  return new ModelError(`graph: ${weight.name} has shape [${weight.shape}], expected a ${what}`);
}
