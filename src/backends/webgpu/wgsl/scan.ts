// ssm_scan, delta_net and wkv: the computation of each with a token, for the kernel of all scans (scan-kernel.ts). Products that are added are written
// with fma(): a compiler that may choose would choose otherwise in another kernel.

import type { NodeOf } from "../../../graph/graph.ts";
import { type Inlined, nothingInlined, ValueTexts } from "./inlined.ts";
import type { Kernel } from "./kernel.ts";
import { scanKernel } from "./scan-kernel.ts";
import type { Element, Scan, ScanContext } from "./scan-shape.ts";

/** The most keys: five vectors of a token, and the results of its lanes, fit every device's 16 KiB. */
export const MOST_KEYS = 512;

/** Storage buffers that every scan binds: the state, the batch, the result. */
export const SCAN_BUFFERS = 3;

/** e^x, where a large -x gives 0 on every device. */
const decayOf = (x: string): string => `exp(clamp(${x}, -80.0, 88.0))`;
const decaysOf = (x: string): string => `exp(clamp(${x}, vec4f(-80.0), vec4f(88.0)))`;

/** An element that readApart() has declared functions for, at a column of the value; `made`: the value computed from it. */
function element(
  name: string,
  column: (index: string) => string,
  made: (value: string) => string = (value) => value,
): Element {
  return {
    loads: (index) => [`${name}Raw(row, ${column(index)})`],
    value: ([raw], index) => made(`${name}Of(${raw}, ${column(index)})`),
  };
}

const same = (index: string): string => index;
const ofHead = (): string => "head";

export function ssmScanKernel(
  node: NodeOf<"ssm_scan">,
  context: ScanContext,
  inlined: Inlined = nothingInlined,
): Kernel {
  const { x, dt, b, c, a, skip, states, state, out } = node;
  const heads = dt.cols;
  const groups = b.cols / states;
  const values = new ValueTexts(inlined.before);
  values.readApart("input", x);
  values.readApart("step", dt);
  values.readApart("keys", b);
  values.readApart("queries", c);
  const [rates, skips] = [values.vector(a), values.vector(skip)];
  const common = { state, keys: states, single: {}, constant: {} };
  if (a.shape.length === 2) {
    // A head of one column would leave all other lanes idle: all channels are the columns of one head.
    const scan: Scan = {
      ...common,
      name: `ssm_scan [${heads}, ${states}]`,
      heads: 1,
      columns: heads,
      place: (key, column) => `${column} * ${states}u + ${key}`,
      keyed: { key: element("keys", same), query: element("queries", same) },
      valued: { value: element("input", same), pace: element("step", same) },
      constant: { rate: (key, column) => `${rates}[${column} * ${states}u + ${key}]` },
      second: (of) => `
          ${of("state")} = fma(${of("state")}, ${decaysOf(`pace * ${of("rate")}`)}, ${of("key")} * (pace * value));
          total = fma(${of("state")}, ${of("query")}, total);`,
      result: (value) => `fma(${skips}[column], ${value("value")}, sum)`,
    };
    return scanKernel(scan, values, values.stored(out, inlined.after), context);
  }
  const columns = x.cols / heads;
  const ofGroup = (key: string) => `head / ${heads / groups}u * ${states}u + ${key}`;
  const inHead = (column: string) => `head * ${columns}u + ${column}`;
  const input = element("input", inHead);
  const step = element("step", ofHead);
  const scan: Scan = {
    ...common,
    name: `ssm_scan [${heads}, ${states}, ${columns}]`,
    heads,
    columns,
    place: (key, column) => `${key} * ${columns}u + ${column}`,
    keyed: { key: element("keys", ofGroup), query: element("queries", ofGroup) },
    valued: {
      value: input,
      added: {
        loads: (column) => [...step.loads(column), ...input.loads(column)],
        value: ([pace, value], column) =>
          `${step.value([pace!], column)} * ${input.value([value!], column)}`,
      },
    },
    single: { decay: element("step", ofHead, (pace) => decayOf(`${pace} * ${rates}[head]`)) },
    second: (of) => `
          ${of("state")} = fma(${of("state")}, vec4f(decay), ${of("key")} * added);
          total = fma(${of("state")}, ${of("query")}, total);`,
    result: (value) => `fma(${skips}[head], ${value("value")}, sum)`,
  };
  return scanKernel(scan, values, values.stored(out, inlined.after), context);
}

export function deltaNetKernel(
  node: NodeOf<"delta_net">,
  context: ScanContext,
  inlined: Inlined = nothingInlined,
): Kernel {
  const { q, k, v, dt, beta, a, keyHeads, tiled, state, out } = node;
  const heads = beta.cols;
  const [keys, columns] = [k.cols / keyHeads, v.cols / heads];
  const keyHead = tiled ? `head % ${keyHeads}u` : `head / ${heads / keyHeads}u`;
  const isPerKey = dt.cols !== heads;
  const values = new ValueTexts(inlined.before);
  values.readApart("queries", q);
  values.readApart("keys", k);
  values.readApart("input", v);
  values.readApart("step", dt);
  values.readApart("shares", beta);
  const rates = values.vector(a);
  const decay = (column: (index: string) => string): Element =>
    element("step", column, (pace) => decayOf(`${rates}[head] * ${pace}`));
  const ofKeyHead = (key: string) => `${keyHead} * ${keys}u + ${key}`;
  const scan: Scan = {
    name: `delta_net [${heads}, ${keys}, ${columns}]${isPerKey ? " with decays of keys" : ""}`,
    state,
    heads,
    keys,
    columns,
    place: (key, column) => `${key} * ${columns}u + ${column}`,
    keyed: {
      key: element("keys", ofKeyHead),
      query: element("queries", ofKeyHead),
      ...(isPerKey && { decay: decay((key) => `head * ${keys}u + ${key}`) }),
    },
    valued: { value: element("input", (column) => `head * ${columns}u + ${column}`) },
    single: { share: element("shares", ofHead), ...(!isPerKey && { decay: decay(ofHead) }) },
    constant: {},
    first: (of) => `
          ${of("state")} *= ${of("decay")};
          found = fma(${of("state")}, ${of("key")}, found);`,
    between: "let delta = (value - all) * share;",
    second: (of) => `
          ${of("state")} = fma(${of("key")}, vec4f(delta), ${of("state")});
          total = fma(${of("state")}, ${of("query")}, total);`,
    result: () => "sum",
  };
  return scanKernel(scan, values, values.stored(out, inlined.after), context);
}

export function wkvKernel(
  node: NodeOf<"wkv">,
  context: ScanContext,
  inlined: Inlined = nothingInlined,
): Kernel {
  const { r, w, k, v, a, b, bonus, heads, state, out } = node;
  const size = v.cols / heads;
  const values = new ValueTexts(inlined.before);
  const at = (index: string) => `head * ${size}u + ${index}`;
  const keyed = { key: k, query: r, decay: w, ...(a && { removal: a, factor: b! }) };
  for (const [name, value] of Object.entries(keyed)) values.readApart(`${name}s`, value);
  values.readApart("input", v);
  const bonuses = bonus && values.vector(bonus);
  const common = {
    state,
    heads,
    keys: size,
    columns: size,
    place: (key: string, column: string) => `${key} * ${size}u + ${column}`,
    keyed: Object.fromEntries(Object.keys(keyed).map((name) => [name, element(`${name}s`, at)])),
    valued: { value: element("input", at) },
    single: {},
    result: () => "sum",
  };
  const scan: Scan = bonuses
    ? {
        ...common,
        name: `wkv with bonus [${heads}, ${size}]`,
        constant: { bonus: (key) => `${bonuses}[${at(key)}]` },
        second: (of) => `
          let added = ${of("key")} * value;
          total = fma(${of("query")}, fma(${of("bonus")}, added, ${of("state")}), total);
          ${of("state")} = fma(${of("state")}, ${of("decay")}, added);`,
      }
    : {
        ...common,
        name: `wkv with removal [${heads}, ${size}]`,
        constant: {},
        first: (of) => `
          found = fma(${of("removal")}, ${of("state")}, found);`,
        between: "",
        second: (of) => `
          ${of("state")} = fma(${of("state")}, ${of("decay")}, fma(${of("key")}, vec4f(value), all * ${of("factor")}));
          total = fma(${of("state")}, ${of("query")}, total);`,
      };
  return scanKernel(scan, values, values.stored(out, inlined.after), context);
}
