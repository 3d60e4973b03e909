// Kernels that pack 16 rows of floats into a row panel, as IR: F32, and the types of 16 bits, unchanged or coded
// (half-panels.ts). A panel is column -> 16 rows. All are called as those of pack-kernel.ts are, with the columns instead
// of spans: (source, row bytes, panel, scratch, whole visits, rest).
//
// A row is visited for 64 bytes at a time, a cache line: rows of 4096 floats are so far apart that sixteen lines of them do
// not stay in a cache of four or eight ways. `rest` counts the fours of columns that are left at the end.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { lazyKernel } from "../../ir/lazy-kernel.ts";
import { HALF_PANEL_HEADER } from "./half-panels.ts";
import { raiseLanes } from "./pack-kernel.ts";
import { PANEL_ROWS } from "./packed.ts";
import type { LayoutTarget } from "./packing.ts";

/** Bytes of a row that are packed in one visit. */
const VISIT_BYTES = 64;
/** Columns are a multiple of this. */
const FEWEST_COLS = 4;

/** The parameters of such a kernel that give the number of columns. */
export function visitsOf(cols: number, elementBytes: number): { whole: number; rest: number } {
  const inVisit = VISIT_BYTES / elementBytes;
  const whole = Math.floor(cols / inVisit);
  return { whole, rest: (cols - whole * inVisit) / FEWEST_COLS };
}

interface PackParams {
  readonly source: Reg<"ptr">;
  readonly rowBytes: Reg<"i32">;
  readonly panel: Reg<"ptr">;
  readonly scratch: Reg<"ptr">;
}

/**
 * Calls visit in a loop over whole visits and in one over the rest, with the bytes of a row. Columns begin at an offset from
 * the panel's first byte, which is returned.
 */
function eachVisit(
  k: KernelBuilder,
  elementBytes: number,
  header: number,
  visit: (p: PackParams, bytes: number) => void,
): Reg<"ptr"> {
  const p: PackParams = {
    source: k.param("ptr", "source"),
    rowBytes: k.param("i32", "row_bytes"),
    panel: k.param("ptr", "panel"),
    scratch: k.param("ptr", "scratch"),
  };
  const counts = [k.param("i32", "whole"), k.param("i32", "rest")];
  const first = k.variable(p.panel, "first");
  k.advance(p.panel, header);
  [VISIT_BYTES, FEWEST_COLS * elementBytes].forEach((bytes, i) => {
    k.loop(counts[i]!, () => {
      visit(p, bytes);
      k.advance(p.source, bytes);
      k.advance(p.panel, bytes * PANEL_ROWS);
    });
  });
  return first;
}

export function packF32Kernel({ width }: LayoutTarget): Kernel {
  return lazyKernel("pack_f32", width, () => packF32(width));
}

function packF32(width: number): Kernel {
  const k = new KernelBuilder("pack_f32", width);
  eachVisit(k, 4, 0, ({ source, rowBytes, panel }, bytes) => {
    const from = k.variable(source);
    const lane = k.variable(panel);
    k.loop(k.i32(PANEL_ROWS), () => {
      for (let at = 0; at < bytes; at += 4) {
        k.op("i32.store", [lane, k.op("i32.load", [from], at)], at * PANEL_ROWS);
      }
      k.update(from, "ptr.add", [from, rowBytes]);
      k.advance(lane, 4);
    });
  });
  return k.finish();
}

/** Rows of a panel in scratch memory, word by word: the even ones, then the odd ones. */
const EVEN_BYTES: number = (PANEL_ROWS / 2) * 4;
const PAIR_BYTES: number = 2 * EVEN_BYTES;

/** Two columns from the words of even and odd rows: a lane of each result is two rows. */
type Columns = (even: Reg<"i32v">, odd: Reg<"i32v">) => readonly [Reg<"i32v">, Reg<"i32v">];

/** Returns the panel's first byte. */
function packHalves(k: KernelBuilder, header: number, columns: Columns): Reg<"ptr"> {
  return eachVisit(k, 2, header, ({ source, rowBytes, panel, scratch }, bytes) => {
    const from = k.variable(source);
    const lane = k.variable(scratch);
    k.loop(k.i32(PANEL_ROWS / 2), () => {
      for (const side of [0, EVEN_BYTES]) {
        for (let at = 0; at < bytes; at += 4) {
          const to = (at / 4) * PAIR_BYTES + side;
          k.op("i32.store", [lane, k.op("i32.load", [from], at)], to);
        }
        k.update(from, "ptr.add", [from, rowBytes]);
      }
      k.advance(lane, 4);
    });
    for (let at = 0; at < bytes; at += 4) {
      for (let part = 0; part < EVEN_BYTES; part += k.width) {
        const word = (at / 4) * PAIR_BYTES + part;
        const even = k.op("i32v.load", [scratch], word);
        const odd = k.op("i32v.load", [scratch], word + EVEN_BYTES);
        columns(even, odd).forEach((column, c) => {
          k.op("i32v.store", [panel, column], (at / 2 + c) * PANEL_ROWS * 2 + part);
        });
      }
    }
  });
}

/** Unchanged: F16 where the target converts half floats, and BF16. */
export function packHalvesKernel(dtype: string, { width }: LayoutTarget): Kernel {
  const [name, most] = [`pack_${dtype}`, Math.min(width, EVEN_BYTES)]; // no wider than eight rows' words
  return lazyKernel(name, most, () => packPlainHalves(new KernelBuilder(name, most)));
}

function packPlainHalves(k: KernelBuilder): Kernel {
  const and = (x: Reg<"i32v">, mask: number) =>
    k.op("i32v.and", [x, k.op("i32v.const", [], mask | 0)]);
  packHalves(k, 0, (even, odd) => [
    k.op("i32v.or", [and(even, 0xffff), k.op("i32v.shl", [odd], 16)]),
    k.op("i32v.or", [k.op("i32v.shr_u", [even], 16), and(odd, 0xffff0000)]),
  ]);
  return k.finish();
}

/** Coded; it leaves the bits of the largest half floats that it saw where the panel's factor belongs. */
export function packCodedHalvesKernel(dtype: string, { width }: LayoutTarget): Kernel {
  const name = `pack_${dtype}`;
  return lazyKernel(name, width, () => packCodedHalves(new KernelBuilder(name, width)));
}

function packCodedHalves(k: KernelBuilder): Kernel {
  const largest = k.variable(k.op("i32v.const", [], 0));
  const low = (x: Reg<"i32v">) => k.op("i32v.and", [x, k.op("i32v.const", [], 0xffff)]);
  const high = (x: Reg<"i32v">) => k.op("i32v.shr_u", [x], 16);
  const pair = (even: Reg<"i32v">, odd: Reg<"i32v">) => {
    const above = k.op("i32v.shl", [raiseLanes(k, odd, largest)], 16);
    return k.op("i32v.or", [raiseLanes(k, even, largest), above]);
  };
  const columns: Columns = (even, odd) => [pair(low(even), low(odd)), pair(high(even), high(odd))];
  const first = packHalves(k, HALF_PANEL_HEADER, columns);
  k.op("i32v.store", [first, largest]);
  return k.finish();
}
