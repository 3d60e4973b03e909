// The kernel of a scan (scan.ts): over the tokens of each sequence, with a matrix [keys, columns] for each head as the state. A workgroup
// has some columns of a head. Several lanes share a column, each with some of its keys, which stay in registers from the first token to the
// last. A token's values that lanes read are in workgroup memory, a chunk of tokens at a time; the next chunk is loaded meanwhile.
//
// A token's result is the sum over the lanes of a column. It waits in workgroup memory until the chunk is done, so lanes have a barrier
// once for a chunk, and not for each token. If a token's state depends on such a sum (`first`), they exchange it (subgroups.ts).
//
// No sum depends on how a text is divided into batches, or on the length of a chunk.

import type { Value } from "../../../graph/graph.ts";
import { SEGMENT_WORDS } from "../batch-area.ts";
import type { ValueTexts } from "./inlined.ts";
import { type Kernel, makeKernel } from "./kernel.ts";
import {
  type Element,
  type Scan,
  type ScanContext,
  type ScanShape,
  shapeOf,
  type VectorText,
} from "./scan-shape.ts";

/** NO_SLOT as an unsigned word. */
const NONE = "0xffffffffu";

/** Vectors of 4 keys that a lane has in variables; with more of them they are an array. Software drivers take minutes to compile 16. */
const MOST_VARIABLES = 8;

/** The most workgroups for the sequences of a batch; each takes every 16th sequence. */
const MOST_SEQUENCES = 16;

/** `out`: the value that it stores, as stored() of `values` gives it. */
export function scanKernel(
  scan: Scan,
  values: ValueTexts,
  out: Value,
  context: ScanContext,
): Kernel {
  const { batch, exchange } = context;
  const { heads, keys, columns } = scan;
  const shape = shapeOf(scan, context);
  const { parts, tokens, areNeighbours, stride } = shape;
  const size = parts * shape.columns;
  const pieces = Math.ceil(columns / shape.columns);
  const staged = stagedText(scan, shape, size);
  const held = heldText(scan, shape);
  const outputs = Array.from({ length: Math.ceil((tokens * shape.columns) / size) }, (_, i) => i);
  const isWhole = columns % shape.columns === 0;
  const each = (text: (i: number) => string): string => outputs.map(text).join("");
  const reduces = scan.first && parts > 1;
  const keptAt = (slot: string, key: string): string =>
    `kept[${slot} * ${heads * keys * columns}u + head * ${keys * columns}u + ${scan.place(key, "column")}]`;
  const summed = `
        ${each(
          (i) => `
        let index${i} = lane + ${i * size}u;
        let token${i} = index${i} / ${shape.columns}u;
        let column${i} = firstColumn + index${i} % ${shape.columns}u;
        let isOwn${i} = token${i} < count${isWhole ? "" : ` && column${i} < ${columns}u`};
        var rest${i} = 0.0;
        if (isOwn${i}) { rest${i} = restAt(chunk + token${i}, head * ${columns}u + column${i}); }`,
        )}
        ${tokensText(scan, shape, held, "")}
        ${each(
          (i) => `
        if (isOwn${i}) {
          var sum = partial[token${i} * ${parts * stride}u + column${i} - firstColumn];
          for (var other = 1u; other < ${parts}u; other++) { sum += partial[(token${i} * ${parts}u + other) * ${stride}u + column${i} - firstColumn]; }
          let found = ${scan.result((name) => `${name}Of[(turn * ${tokens}u + token${i}) * ${shape.columns}u + column${i} - firstColumn]`)};
          let at = head * ${columns}u + column${i};
          result[(chunk + token${i}) * ${heads * columns}u + at] = stored(found, rest${i}, at);
        }`,
        )}`;
  const alone = tokensText(
    scan,
    shape,
    held,
    `
          if (exists) {
            let own = head * ${columns}u + column;
            let made = ${scan.result((name) => name)};
            result[(chunk + t) * ${heads * columns}u + own] = stored(made, restAt(chunk + t, own), own);
          }`,
  );
  const chunkText = `
        let count = min(${tokens}u, end - chunk);${parts > 1 ? summed : alone}
        turn = 1u - turn;`;
  return makeKernel({
    name: scan.name,
    size,
    bindings: [
      ...values.bindings,
      { name: "kept", type: "f32", source: { kind: "recurrent", state: scan.state }, writes: true },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    enables: reduces ? exchange.enables : [],
    declarations: `${values.functions}${staged.declarations}${
      parts > 1
        ? `
var<workgroup> partial: array<f32, ${tokens * parts * stride}>; // [token][part][column]`
        : ""
    }${
      reduces ? `${exchange.declarations(size)}${exchange.reduce("sumOfColumn", parts, "sum")}` : ""
    }`,
    rows: out.rows,
    grid: (rows) => [heads * pieces, Math.min(rows, MOST_SEQUENCES), 1],
    body: `
  let sequences = batch[${batch.sequences}u + batch[0] - 1u] + 1u;
  let part = lane ${areNeighbours ? `% ${parts}u` : `/ ${shape.columns}u`};
  let place = lane ${areNeighbours ? `/ ${parts}u` : `% ${shape.columns}u`};
  let head = group.x / ${pieces}u;
  let firstColumn = group.x % ${pieces}u * ${shape.columns}u;
  let column = min(firstColumn + place, ${columns - 1}u);
  let exists = ${isWhole ? "true" : `firstColumn + place < ${columns}u`};
  ${held.constants}
  var turn = 0u;
  for (var sequence = group.y; sequence < sequences; sequence += groups.y) {
    let segment = ${batch.segments}u + sequence * ${SEGMENT_WORDS}u;
    let oldSlot = batch[segment + 1u];
    let newSlot = batch[segment + 2u];
    var end = batch[0];
    if (sequence + 1u < sequences) { end = batch[segment + ${SEGMENT_WORDS}u]; }
    ${held.load((key) => keptAt("oldSlot", key), `oldSlot != ${NONE}`)}
    ${staged.variables}
    // The next chunk is loaded, then the one before it is computed, which lies in workgroup memory.
    for (var next = batch[segment]; ; next += ${tokens}u) {
      if (next < end) {
        ${staged.load("next")}
      }
      if (next > batch[segment]) {
        let chunk = next - ${tokens}u;
        ${chunkText}
      }
      if (next >= end) { break; }
      ${staged.store}
      workgroupBarrier();
    }
    if (exists && newSlot != ${NONE}) {
      ${held.store((key) => keptAt("newSlot", key))}
    }
  }`,
  });
}

/** The tokens of a chunk, in a lane's keys; `behind`: after each of them, if a lane has its column for itself. */
function tokensText(scan: Scan, shape: ScanShape, held: HeldText, behind: string): string {
  const { parts, vectors, tokens, columns, stride } = shape;
  const total = "(total.x + total.y) + (total.z + total.w)";
  const found = "(found.x + found.y) + (found.z + found.w)";
  const all = parts > 1 ? `sumOfColumn(${found}, lane)` : found;
  const loads = [
    ...held.loads.map(({ name, at }) => ({
      name,
      type: "vec4f",
      at: (token: string) => at(`${token} * ${vectors}u + part`),
    })),
    ...Object.keys(scan.single).map((name) => ({
      name,
      type: "f32",
      at: (token: string) => `${name}Of[${token}]`,
    })),
    ...Object.keys(scan.valued).map((name) => ({
      name,
      type: "f32",
      at: (token: string) => `${name}Of[(turn * ${tokens}u + ${token}) * ${columns}u + place]`,
    })),
  ];
  // Lanes that share columns load the next token's values before this one is computed. Others have too many of them.
  const isAhead = parts > 1;
  const ahead = isAhead
    ? loads.map(({ name, at }) => `var ${name}Ahead = ${at("0u")};`).join("\n        ")
    : "";
  const own = isAhead
    ? `${loads.map(({ name }) => `let ${name} = ${name}Ahead;`).join(" ")}
          let later = min(t + 1u, ${tokens - 1}u);
          ${loads.map(({ name, at }) => `${name}Ahead = ${at("later")};`).join(" ")}`
    : loads.map(({ name, at }) => `let ${name} = ${at("t")};`).join(" ");
  return `
        ${ahead}
        for (var t = 0u; t < count; t++) {
          ${own}
          let at = t * ${vectors}u + part;
          ${
            scan.first
              ? `var found = vec4f();
          ${held.each(scan.first)}
          let all = ${all};
          ${scan.between!}`
              : ""
          }
          var total = vec4f();
          ${held.each(scan.second)}
          ${parts > 1 ? `partial[(t * ${parts}u + part) * ${stride}u + place]` : "let sum"} = ${total};${behind}
        }
        workgroupBarrier();`;
}

interface HeldText {
  readonly constants: string;
  load(at: (key: string) => string, isThere: string): string;
  store(at: (key: string) => string): string;
  /** The keyed vectors of a token that are loaded ahead, each as a variable, and their addresses, relative to the token's. */
  readonly loads: readonly { readonly name: string; at(token: string): string }[];
  /** `text` for each vector of the lane. */
  each(text: VectorText): string;
}

/** A lane's vectors of the state, and of constants: part p of P has those with the numbers p, p + P, p + 2 P ... */
function heldText(scan: Scan, { parts, vectors }: ScanShape): HeldText {
  const { keys } = scan;
  const count = vectors / parts;
  const names = Object.keys(scan.constant);
  const keyed = Object.keys(scan.keyed);
  const isWhole = keys === vectors * 4;
  const vector = (i: string, element: (key: string) => string): string => {
    const first = `(${i} * ${parts}u + part) * 4u`;
    const values = [0, 1, 2, 3].map((c) => {
      if (isWhole) return element(`(${first} + ${c}u)`);
      const key = `${first} + ${c}u`;
      return `select(0.0, ${element(`min(${key}, ${keys - 1}u)`)}, ${key} < ${keys}u)`;
    });
    return `vec4f(${values.join(", ")})`;
  };
  const stores = (i: string, of: string, at: (key: string) => string): string =>
    [0, 1, 2, 3]
      .map((c) => {
        const key = `(${i} * ${parts}u + part) * 4u + ${c}u`;
        const store = `${at(`(${key})`)} = ${of}[${c}];`;
        return isWhole ? store : `if (${key} < ${keys}u) { ${store} }`;
      })
      .join(" ");
  const constant = (name: string, i: string): string =>
    vector(i, (key) => scan.constant[name]!(key, "column"));
  if (count > MOST_VARIABLES) {
    const arrays: Record<string, string> = { state: "held[i]" };
    for (const name of names) arrays[name] = `${name}[i]`;
    const loop = (text: string): string => `for (var i = 0u; i < ${count}u; i++) { ${text} }`;
    return {
      constants: names
        .map(
          (name) =>
            `var ${name}: array<vec4f, ${count}>; ${loop(`${name}[i] = ${constant(name, "i")};`)}`,
        )
        .join("\n  "),
      load: (at, isThere) =>
        `var held: array<vec4f, ${count}>;
    ${loop(`held[i] = vec4f(); if (${isThere}) { held[i] = ${vector("i", at)}; }`)}`,
      store: (at) => loop(stores("i", "held[i]", at)),
      loads: [],
      each: (text) => {
        const loads = keyed.map((name) => `let ${name} = ${name}Of[at + i * ${parts}u];`).join(" ");
        return loop(`${loads} ${text((name) => arrays[name] ?? name)}`);
      },
    };
  }
  const all = Array.from({ length: count }, (_, i) => i);
  const isOwn = (name: string): boolean => names.includes(name) || keyed.includes(name);
  const each = (text: (i: number) => string): string => all.map(text).join("\n        ");
  return {
    constants: names
      .flatMap((name) => all.map((i) => `let ${name}${i} = ${constant(name, `${i}u`)};`))
      .join("\n  "),
    load: (at, isThere) => `${each((i) => `var held${i} = vec4f();`)}
    if (${isThere}) { ${each((i) => `held${i} = ${vector(`${i}u`, at)};`)} }`,
    store: (at) => each((i) => stores(`${i}u`, `held${i}`, at)),
    loads: all.flatMap((i) =>
      keyed.map((name) => ({
        name: `${name}${i}`,
        at: (token: string) => `${name}Of[${token} + ${i * parts}u]`,
      })),
    ),
    each: (text) =>
      each((i) => {
        const own = (name: string): string => (isOwn(name) ? `${name}${i}` : name);
        return `{ ${text((name) => (name === "state" ? `held${i}` : own(name)))} }`;
      }),
  };
}

interface StagedText {
  readonly declarations: string;
  /** Loaded values of a chunk, before they are stored. */
  readonly variables: string;
  /** Loads the chunk that begins with a row (WGSL). */
  load(from: string): string;
  /** Stores the last loaded values in workgroup memory. */
  readonly store: string;
}

/**
 * Values of a chunk's tokens that lanes read: `NAMEOf`, in workgroup memory. A lane stores whole vectors: parts of one would race (stage.ts).
 */
function stagedText(scan: Scan, shape: ScanShape, size: number): StagedText {
  const { vectors, tokens, columns } = shape;
  const isWhole = scan.keys === vectors * 4;
  /** Items of each lane. */
  const turnsOf = (count: number): number => Math.ceil(count / size);
  /** `text` for each item of the lane: `item` is its number, and `turn` (WGSL) that among the lane's. */
  const items = (count: number, text: (turn: string) => string): string => {
    const turns = turnsOf(count);
    const isAll = turns * size === count;
    const own = (turn: string): string =>
      isAll ? text(turn) : `if (item < ${count}u) { ${text(turn)} }`;
    if (turns === 1) return `{ let item = lane; ${own("0u")} }`;
    return `for (var i = 0u; i < ${turns}u; i++) { let item = lane + i * ${size}u; ${own("i")} }`;
  };
  /** Loaded values of a piece are in variables; its computed values, in workgroup memory. */
  const piece = (
    name: string,
    { loads, value }: Element,
    count: number,
    copies: number,
    place: string,
    index: string,
  ) => {
    const names = loads(index).map((_, i) => `${name}Next${i}`);
    return {
      name,
      type: "f32",
      count,
      copies,
      place,
      names,
      loads: loads(index),
      value: (loaded: readonly string[]) => value(loaded, index),
    };
  };
  const keyedPiece = (name: string, { loads, value }: Element) => {
    const four = [0, 1, 2, 3].map((c) =>
      isWhole ? `(key + ${c}u)` : `min(key + ${c}u, ${scan.keys - 1}u)`,
    );
    const names = loads("key").map((_, i) => `${name}Next${i}`);
    return {
      name,
      type: "vec4f",
      count: tokens * vectors,
      copies: 1,
      place: `let row = min(start + item / ${vectors}u, end - 1u); let key = item % ${vectors}u * 4u;`,
      names,
      loads: names.map((_, i) => `vec4f(${four.map((key) => loads(key)[i]!).join(", ")})`),
      value: (loaded: readonly string[]) => {
        const made = four.map((key, c) => {
          const one = value(
            loaded.map((each) => `${each}[${c}]`),
            key,
          );
          return isWhole ? one : `select(0.0, ${one}, key + ${c}u < ${scan.keys}u)`;
        });
        return `vec4f(${made.join(", ")})`;
      },
    };
  };
  const columnPlace = `let row = min(start + item / ${columns}u, end - 1u); let own = min(firstColumn + item % ${columns}u, ${scan.columns - 1}u);`;
  const pieces = [
    ...Object.entries(scan.keyed).map(([name, element]) => keyedPiece(name, element)),
    ...Object.entries(scan.valued).map(([name, element]) =>
      piece(name, element, tokens * columns, 2, columnPlace, "own"),
    ),
    ...Object.entries(scan.single).map(([name, element]) =>
      piece(name, element, tokens, 1, "let row = min(start + item, end - 1u);", "0u"),
    ),
  ];
  const each = (text: (piece: (typeof pieces)[number]) => string): string =>
    pieces.map(text).join("\n      ");
  const nextOf = ({ count }: (typeof pieces)[number], name: string, turn: string): string =>
    turnsOf(count) > 1 ? `${name}[${turn}]` : name;
  return {
    declarations: pieces
      .map(
        ({ name, type, count, copies }) =>
          `\nvar<workgroup> ${name}Of: array<${type}, ${count * copies}>;`,
      )
      .join(""),
    variables: each(({ names, type, count }) => {
      const turns = turnsOf(count);
      const own = turns > 1 ? `array<${type}, ${turns}>` : type;
      return names.map((name) => `var ${name}: ${own};`).join(" ");
    }),
    load: (from) => `let start = ${from};
      ${each((one) =>
        items(one.count, (turn) => {
          const stores = one.names.map(
            (name, i) => `${nextOf(one, name, turn)} = ${one.loads[i]};`,
          );
          return `${one.place} ${stores.join(" ")}`;
        }),
      )}`,
    store: `let start = next;
      ${each((one) => {
        const at = one.copies > 1 ? `turn * ${one.count}u + item` : "item";
        return items(one.count, (turn) => {
          const loaded = one.names.map((name) => nextOf(one, name, turn));
          return `${one.place} ${one.name}Of[${at}] = ${one.value(loaded)};`;
        });
      })}`,
  };
}
