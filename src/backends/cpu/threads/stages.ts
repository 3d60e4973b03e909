// Stages: instructions that the threads run without a barrier in between. A token has several hundred instructions, and a
// barrier after each would cost some microseconds.
//
//   as one      independent matmuls (q, k and v; gate and up): their chunks are in one list (chunk-lists.ts)
//   row by row  instructions whose rows are independent (add, norm, quantize): a chunk is a row, which goes through all of
//               them
//   by column   networks whose neurons are mostly zero, for few tokens (column-stages.ts)
// The leader plans stages once; each thread makes the executors of stages from those of the instructions.

import type { Executor } from "../executor.ts";
import type { Access, Area } from "../ops/op.ts";
import { accessOf, columnsOf, type Instruction } from "../ops/table.ts";
import type { Stage } from "../program.ts";
import { chunkOf, NO_CHUNK, partOf, planChunks } from "./chunk-lists.ts";
import { areFew, byColumn, columnRuns } from "./column-stages.ts";

/** Whether `later` may be in a stage with `earlier`, by the kind of stage. */
const allows = {
  "row by row": (earlier: Access, later: Access): boolean =>
    earlier.rows === later.rows &&
    clashes([...earlier.reads, ...earlier.writes], later.writes).every(isRowByRow) &&
    clashes(earlier.writes, later.reads).every(isRowByRow),
  "as one": (earlier: Access, later: Access): boolean =>
    clashes([...earlier.reads, ...earlier.writes], later.writes).length === 0 &&
    clashes(earlier.writes, later.reads).length === 0,
} as const;

/** Pairs of areas that are the same memory. */
function clashes(some: readonly Area[], others: readonly Area[]): [Area, Area][] {
  return some.flatMap((one) =>
    others.filter(({ at }) => at === one.at).map((other): [Area, Area] => [one, other]),
  );
}

/** Row r of one is row r of the other, so rows stay independent. */
function isRowByRow([one, other]: [Area, Area]): boolean {
  return one.rowBytes === other.rowBytes && one.rowBytes > 0;
}

export function planStages(instructions: readonly Instruction[]): Stage[] {
  const stages: { -readonly [K in keyof Stage]: Stage[K] }[] = [];
  const runs = columnRuns(instructions.map(columnsOf));
  let open: { kind: Stage["kind"]; accesses: Access[] } | undefined;
  let end = 0; // of the last run
  instructions.forEach((instruction, index) => {
    const run = runs.find(({ first }) => first === index);
    if (run || index === end) open = undefined;
    if (run) {
      const all = instructions.slice(run.first, run.end).map((_, i) => run.first + i);
      stages.push({ kind: "by column", instructions: all, cols: run.cols });
      end = run.end;
    }
    const rest = index < end ? { isRest: true } : {};
    const access = accessOf(instruction);
    if (access === "barrier") {
      open = undefined;
      stages.push({ kind: "as one", instructions: [index], ...rest });
      return;
    }
    const { stage: kind } = access;
    const own = access.of(instruction);
    if (open?.kind === kind && open.accesses.every((earlier) => allows[kind](earlier, own))) {
      open.accesses.push(own);
      const last = stages.at(-1)!;
      last.instructions = [...last.instructions, index];
      return;
    }
    open = { kind, accesses: [own] };
    stages.push({ kind, instructions: [index], ...rest });
  });
  return stages;
}

/** An executor of a stage. */
export interface StageExecutor extends Executor {
  /** The time of each instruction of the stage; undefined: times are not recorded. */
  readonly spent?: readonly Spent[];
}

/** Time and chunks since it was last read. */
export interface Spent {
  ms: number;
  chunks: number;
}

/** Whether times are recorded now, and the clock. */
export interface StageClock {
  readonly isOn: boolean;
  now(): number;
}

/** With a clock, stages of several instructions record the time of each. */
export function stageExecutors(
  stages: readonly Stage[],
  executors: readonly Executor[],
  threads: number,
  clock: StageClock | undefined,
): StageExecutor[] {
  return stages.map((stage) => {
    const parts = stage.instructions.map((index) => executors[index]!);
    const made = stageExecutor(stage, parts, threads, clock);
    if (!stage.isRest) return made;
    const [first] = parts as [Executor];
    return { ...made, chunks: () => (areFew(first) ? 0 : made.chunks()) };
  });
}

function stageExecutor(
  { kind, cols }: Stage,
  parts: readonly Executor[],
  threads: number,
  clock: StageClock | undefined,
): StageExecutor {
  if (parts.length === 1) return parts[0]!;
  const spent = clock && parts.map((): Spent => ({ ms: 0, chunks: 0 }));
  const timed = clock && spent ? timer(clock, spent) : untimed;
  const make = {
    "as one": () => asOne(parts, threads, timed),
    "row by row": () => rowByRow(parts, timed),
    "by column": () => byColumn(parts, cols!, threads, timed),
  };
  const stage = make[kind]();
  return spent ? { ...stage, spent } : stage;
}

/** Runs part number `part` with `argument`, and adds its time. */
type Timed = (part: number, run: (argument: number) => void, argument: number) => void;

const untimed: Timed = (_, run, argument) => run(argument);

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

function asOne(parts: readonly Executor[], threads: number, timed: Timed): Executor {
  // Planned again when the numbers of chunks change: another variant, or no rows.
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
    if (!isSame) codes = planChunks(parts, counts, threads);
    return codes;
  };
  return {
    chunks: () => current().length,
    run: (index) => {
      const code = current()[index]!;
      if (code === NO_CHUNK) return;
      const part = partOf(code);
      timed(part, parts[part]!.run, chunkOf(code));
    },
  };
}

function rowByRow(parts: readonly Executor[], timed: Timed): Executor {
  const rows = parts.map((part) => part.row!);
  return {
    chunks: () => rows[0]!.count(),
    run: (row) => {
      for (let i = 0; i < rows.length; i++) timed(i, rows[i]!.run, row);
    },
  };
}
