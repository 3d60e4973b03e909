// Neurons of float weights (F32; F16 and BF16 where the target reads half floats).
//
// Rows (`up`) lie as in the file. 16 of them become a row panel (column -> 16 rows' values), as word rows do (word-rows.ts): words of
// F32 are copied one by one, words of half floats two rows and two columns at a time.
//
// Columns (`down`) are those of row panels as they are: a row's sum adds one column after the other (matmul/floats.ts), so that a
// column whose activation is zero, which adds zero, can be left out. The list has, for each that is not zero, the byte of the
// column in a panel and the activation.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import type { KernelTarget } from "../../target.ts";
import { PANEL_ROWS } from "../packed/packed.ts";
import { ROW_ENTRY_BYTES } from "./neuron-rows.ts";
import { gatherRowsKernel } from "./word-rows.ts";

export interface FloatNeurons {
  /** Bytes of a value. */
  readonly bytes: 4 | 2;
  readonly load: (k: KernelBuilder, w: Reg<"ptr">, at: number) => Reg<"f32v">;
}

const formats: Readonly<Record<string, FloatNeurons>> = {
  f32: { bytes: 4, load: (k, w, at) => k.op("f32v.load", [w], at) },
  f16: { bytes: 2, load: (k, w, at) => k.op("f32v.load_f16", [w], at) },
  bf16: { bytes: 2, load: (k, w, at) => k.op("f32v.load_bf16", [w], at) },
};

/** undefined: not a type of floats, or its half floats are coded on this target. */
export function floatNeuronsFor(
  dtype: string,
  { halves }: Pick<KernelTarget, "halves">,
): FloatNeurons | undefined {
  const format = Object.hasOwn(formats, dtype) ? formats[dtype]! : undefined;
  return format?.bytes === 2 && halves === "coded" ? undefined : format;
}

/** Words of a row that a round copies: a multiple of these must a row have. */
const ROUND_WORDS = 16;

/** Bytes of a row that a round copies. */
export const ROUND_BYTES: number = 4 * ROUND_WORDS;

/** (w, list, out, rounds): the panel of the 16 rows that a list names first; those of the next 16 are prefetched. */
export function gatherFloatsKernel(name: string, width: number, { bytes }: FloatNeurons): Kernel {
  if (bytes === 2) return gatherHalves(name, width);
  const [lanes, column] = [width / 4, 4 * PANEL_ROWS];
  const words = Array.from({ length: ROUND_WORDS }, (_, i) => ({ at: i * column, apart: width }));
  const panelBytes = ROUND_WORDS * column;
  return gatherRowsKernel(name, { width, lanes, groups: PANEL_ROWS / lanes, panelBytes, words });
}

function gatherHalves(name: string, width: number): Kernel {
  const k = new KernelBuilder(name, width);
  const w = k.variable(k.param("ptr", "w"), "w_at");
  const list = k.param("ptr", "list");
  const out = k.variable(k.param("ptr", "out"), "out_at");
  const rounds = k.param("i32", "rounds");
  const [entry, to] = [k.variable(list, "entry"), k.variable(out, "to")];
  const column = 2 * PANEL_ROWS;
  const half = k.i32(0x10000);
  const place = (at: number) => k.op("ptr.add", [w, k.op("i32.load", [entry], at)]);
  k.loop(rounds, () => {
    k.set(entry, list);
    k.set(to, out);
    k.loop(k.i32(PANEL_ROWS / 2), () => {
      const [first, second] = [place(0), place(ROW_ENTRY_BYTES)];
      for (let row = 0; row < 2; row++) {
        k.op("ptr.prefetch", [place((PANEL_ROWS + row) * ROW_ENTRY_BYTES)]);
      }
      for (let word = 0; word < ROUND_WORDS; word++) {
        const a = k.op("i32.load", [first], 4 * word);
        const b = k.op("i32.load", [second], 4 * word);
        const [upperA, upperB] = [k.op("i32.shr_u", [a], 16), k.op("i32.shr_u", [b], 16)];
        const lowerA = k.op("i32.sub", [a, k.op("i32.mul", [upperA, half])]);
        const even = k.op("i32.add", [lowerA, k.op("i32.mul", [b, half])]);
        const odd = k.op("i32.add", [upperA, k.op("i32.mul", [upperB, half])]);
        k.op("i32.store", [to, even], 2 * word * column);
        k.op("i32.store", [to, odd], (2 * word + 1) * column);
      }
      k.advance(entry, 2 * ROW_ENTRY_BYTES);
      k.advance(to, 4);
    });
    k.advance(w, 4 * ROUND_WORDS);
    k.advance(out, 2 * ROUND_WORDS * column);
  });
  return k.finish();
}

/** i32 byte of the column in a panel, f32 activation. */
export const FLOAT_ENTRY_BYTES = 8;

/** Entries ahead whose columns are prefetched: a list must have this many more, of any columns. */
export const FLOAT_ENTRIES_AHEAD = 8;

/**
 * (x, list, columns, columnBytes, written): lists those of `columns` columns that are not zero; writes their number to i32
 * written[1].
 */
export function floatListKernel(name: string, width: number): Kernel {
  const k = new KernelBuilder(name, width);
  const x = k.variable(k.param("ptr", "x"), "x_at");
  const list = k.param("ptr", "list");
  const columns = k.param("i32", "columns");
  const columnBytes = k.param("i32", "columnBytes");
  const written = k.param("ptr", "written");
  const [count, column] = [k.variable(k.i32(0), "count"), k.variable(k.i32(0), "column")];
  const [zero, entryBytes] = [k.i32(0), k.i32(FLOAT_ENTRY_BYTES)];
  k.loop(columns, () => {
    const bits = k.op("i32.load", [x]);
    // No branch depends on it, as in neuron-list.ts: the next entry overwrites a zero, with or without a sign.
    const size = k.op("i32.shr_u", [k.op("i32.add", [bits, bits])], 1);
    const isSome = k.op("i32.shr_u", [k.op("i32.sub", [zero, size])], 31);
    const entry = k.op("ptr.add_product", [list, count, entryBytes]);
    k.op("i32.store", [entry, column], 0);
    k.op("i32.store", [entry, bits], 4);
    k.update(count, "i32.add", [count, isSome]);
    k.update(column, "i32.add", [column, columnBytes]);
    k.advance(x, 4);
  });
  const end = k.op("ptr.add_product", [list, count, entryBytes]);
  for (let i = 0; i < FLOAT_ENTRIES_AHEAD; i++) {
    k.op("i32.store", [end, zero], i * FLOAT_ENTRY_BYTES);
  }
  k.op("i32.store", [written, count]);
  return k.finish();
}

/** Panels that are computed at once, so that eight sums are in flight. */
export function floatPanelsTogether(width: number): number {
  return width / 8;
}

/**
 * (w, list, out, entries, rounds, apart): 16 floats of each panel, in `rounds` rounds of `together` panels, `apart` bytes apart.
 */
export function floatColumnsKernel(
  name: string,
  width: number,
  { bytes, load }: FloatNeurons,
  together: number,
): Kernel {
  const k = new KernelBuilder(name, width);
  const w = k.variable(k.param("ptr", "w"), "w_at");
  const list = k.param("ptr", "list");
  const out = k.variable(k.param("ptr", "out"), "out_at");
  const entries = k.param("i32", "entries");
  const rounds = k.param("i32", "rounds");
  const apart = k.param("i32", "apart");
  const groups = PANEL_ROWS / k.lanes;
  const zero = k.op("f32v.const", [], 0);
  const entry = k.variable(list, "entry");
  k.loop(rounds, () => {
    const panels = [w];
    for (let p = 1; p < together; p++) {
      panels.push(k.variable(k.op("ptr.add", [panels[p - 1]!, apart])));
    }
    const sums = panels.map(() => Array.from({ length: groups }, () => k.variable(zero)));
    k.set(entry, list);
    k.loop(entries, () => {
      const column = k.op("i32.load", [entry], 0);
      const later = k.op("i32.load", [entry], FLOAT_ENTRIES_AHEAD * FLOAT_ENTRY_BYTES);
      const x = k.op("f32v.load_splat", [entry], 4);
      panels.forEach((panel, p) => {
        k.op("ptr.prefetch", [k.op("ptr.add", [panel, later])]);
        const at = k.op("ptr.add", [panel, column]);
        sums[p]!.forEach((sum, g) => {
          k.update(sum, "f32v.fma", [load(k, at, g * k.lanes * bytes), x, sum]);
        });
      });
      k.advance(entry, FLOAT_ENTRY_BYTES);
    });
    sums.flat().forEach((sum, i) => {
      k.op("f32v.store", [out, sum], i * k.width);
    });
    k.advance(out, together * PANEL_ROWS * 4);
    k.set(w, k.op("ptr.add", [panels.at(-1)!, apart]));
  });
  return k.finish();
}
