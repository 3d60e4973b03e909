// Stages: instructions that the threads go through without meeting in between. A meeting costs some microseconds for each
// of several hundred instructions a token, whether they do much or little.
//
//   together  products that do not need each other (q, k and v; gate and up): their chunks are shared out as one lot (lots.ts)
//   in_turn   work that every row does for itself (add, norm, activations to bytes): a chunk is a row, which goes through
//             all of it
// The leader plans them once; executors of stages are made on each thread from those of the instructions.

import type { Rows } from "../../graph/graph.ts";
import type { Executor } from "./executor.ts";
import { chunkOf, NO_CHUNK, partOf, planLot } from "./lots.ts";
import type { Instruction, InstructionKind, InstructionOf, Stage } from "./program.ts";

/** Memory that an instruction reads or writes: where it begins, and the bytes of a row (0: not row by row). */
interface Area {
  readonly at: number;
  readonly rowBytes: number;
}

interface Access {
  readonly rows: Rows;
  readonly reads: readonly Area[];
  readonly writes: readonly Area[];
}

type AccessOf<K extends InstructionKind> = (i: InstructionOf<K>) => Access;

const area = (at: number, rowBytes: number): Area => ({ at, rowBytes });
const product = (i: InstructionOf<"matmul_blocks" | "matmul_floats" | "matmul_rows">): Access => ({
  rows: i.rows,
  reads: [area(i.x, 0)],
  writes: [area(i.out, 0)],
});
const mapped = (i: { rows: Rows; x: number; out: number; cols: number }): Access => ({
  rows: i.rows,
  reads: [area(i.x, i.cols * 4)],
  writes: [area(i.out, i.cols * 4)],
});

/** What each row does for itself. Areas of prepared activations and of the cache are no row's: nobody else is there. */
const rowwise: { readonly [K in InstructionKind]?: AccessOf<K> } = {
  embed: ({ out, table }) => ({
    rows: "tokens",
    reads: [],
    writes: [area(out, table.cols * 4)],
  }),
  select: ({ x, out, cols }) => ({
    rows: "outputs",
    reads: [area(x, 0)],
    writes: [area(out, cols * 4)],
  }),
  rms_norm: mapped,
  layer_norm: mapped,
  softmax: mapped,
  unary: mapped,
  binary: ({ rows, a, b, out, cols }) => ({
    rows,
    reads: [area(a, cols * 4), area(b, cols * 4)],
    writes: [area(out, cols * 4)],
  }),
  rope_table: ({ table, tableSize }) => ({
    rows: "tokens",
    reads: [],
    writes: [area(table, tableSize * 4)],
  }),
  rope: ({ x, out, cols, table, tableSize }) => ({
    rows: "tokens",
    reads: [area(x, cols * 4), area(table, tableSize * 4)],
    writes: [area(out, cols * 4)],
  }),
  kv_write: ({ k, v, cols }) => ({
    rows: "tokens",
    reads: [area(k, cols * 4), area(v, cols * 4)],
    writes: [],
  }),
  quantize: ({ rows, x, cols }) => ({ rows, reads: [area(x, cols * 4)], writes: [] }),
  round: mapped,
};

const products: { readonly [K in InstructionKind]?: AccessOf<K> } = {
  matmul_blocks: product,
  matmul_floats: product,
  matmul_rows: product,
};

interface Kind {
  readonly kind: Stage["kind"];
  readonly accesses: { readonly [K in InstructionKind]?: AccessOf<K> };
  /** Whether `later` may be in a stage with `earlier`. */
  allows(earlier: Access, later: Access): boolean;
}

const kinds: readonly Kind[] = [
  {
    kind: "in_turn",
    accesses: rowwise,
    allows: (earlier, later) =>
      earlier.rows === later.rows &&
      clashes([...earlier.reads, ...earlier.writes], later.writes).every(isRowByRow) &&
      clashes(earlier.writes, later.reads).every(isRowByRow),
  },
  {
    kind: "together",
    accesses: products,
    allows: (earlier, later) =>
      clashes([...earlier.reads, ...earlier.writes], later.writes).length === 0 &&
      clashes(earlier.writes, later.reads).length === 0,
  },
];

/** Pairs of areas that are the same memory. */
function clashes(some: readonly Area[], others: readonly Area[]): [Area, Area][] {
  return some.flatMap((one) =>
    others.filter(({ at }) => at === one.at).map((other): [Area, Area] => [one, other]),
  );
}

/** Row r of one is row r of the other: another row's work does not touch it. */
function isRowByRow([one, other]: [Area, Area]): boolean {
  return one.rowBytes === other.rowBytes && one.rowBytes > 0;
}

export function planStages(instructions: readonly Instruction[]): Stage[] {
  const stages: { kind: Stage["kind"]; instructions: number[] }[] = [];
  let open: { kind: Kind; accesses: Access[] } | undefined;
  instructions.forEach((instruction, index) => {
    const kind = kinds.find(({ accesses }) => accesses[instruction.op]);
    const access = kind && accessOf(kind, instruction);
    if (access && open?.kind === kind) {
      if (open!.accesses.every((earlier) => kind.allows(earlier, access))) {
        open!.accesses.push(access);
        stages.at(-1)!.instructions.push(index);
        return;
      }
    }
    open = kind && access ? { kind, accesses: [access] } : undefined;
    stages.push({ kind: kind?.kind ?? "together", instructions: [index] });
  });
  return stages;
}

function accessOf({ accesses }: Kind, instruction: Instruction): Access {
  return (accesses[instruction.op] as (i: Instruction) => Access)(instruction);
}

/** An executor of a stage. */
export interface StageExecutor extends Executor {
  /** Where each instruction of the stage notes what it took; undefined: nobody asked. */
  readonly spent?: readonly Spent[];
}

/** Since it was last read. */
export interface Spent {
  ms: number;
  chunks: number;
}

/** Whether times are wanted now, and what time it is. */
export interface StageClock {
  readonly isOn: boolean;
  now(): number;
}

/** With a clock, stages of several instructions note what each of them took. */
export function stageExecutors(
  stages: readonly Stage[],
  executors: readonly Executor[],
  threads: number,
  clock: StageClock | undefined,
): StageExecutor[] {
  return stages.map(({ kind, instructions }) => {
    const parts = instructions.map((index) => executors[index]!);
    if (parts.length === 1) return parts[0]!;
    const spent = clock && parts.map((): Spent => ({ ms: 0, chunks: 0 }));
    const timed = clock && spent ? timer(clock, spent) : undefined;
    const stage = kind === "together" ? together(parts, threads, timed) : inTurn(parts, timed);
    return spent ? { ...stage, spent } : stage;
  });
}

/** Runs part number `part` with `argument`, and adds up what it takes. */
type Timed = (part: number, run: (argument: number) => void, argument: number) => void;

function timer(clock: StageClock, spent: readonly Spent[]): Timed {
  return (part, run, argument) => {
    if (!clock.isOn) {
      run(argument);
      return;
    }
    const start = clock.now();
    run(argument);
    const sum = spent[part]!;
    sum.ms += clock.now() - start;
    sum.chunks++;
  };
}

function together(parts: readonly Executor[], threads: number, timed: Timed | undefined): Executor {
  // Planned anew when a step has other numbers of chunks: another variant, or no rows.
  const counts = parts.map(() => -1);
  let codes = new Int32Array();
  const current = () => {
    let isSame = true;
    for (let i = 0; i < parts.length; i++) {
      const count = parts[i]!.chunks();
      if (count === counts[i]) continue;
      counts[i] = count;
      isSame = false;
    }
    if (!isSame) codes = planLot(parts, counts, threads);
    return codes;
  };
  return {
    chunks: () => current().length,
    run: (index) => {
      const code = current()[index]!;
      if (code === NO_CHUNK) return;
      const part = partOf(code);
      const { run } = parts[part]!;
      if (timed) timed(part, run, chunkOf(code));
      else run(chunkOf(code));
    },
  };
}

function inTurn(parts: readonly Executor[], timed: Timed | undefined): Executor {
  const rows = parts.map((part) => part.row!);
  return {
    chunks: () => rows[0]!.count(),
    run: (row) => {
      for (let i = 0; i < rows.length; i++) {
        const { run } = rows[i]!;
        if (timed) timed(i, run, row);
        else run(row);
      }
    },
  };
}
