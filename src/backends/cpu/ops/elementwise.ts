// Elementwise ops: of one operand (activate, scale, softcap; also the rounding of activations), and of two (add, mul, gate).

import type { Activation, NodeOf, Rows, Value } from "../../../graph/graph.ts";
import { activations } from "../../../graph/reference.ts";
import { type Executor, type ExecutorContext, perRow, rowCount } from "../executor.ts";
import {
  area,
  type InstructionDef,
  ifWhole,
  type LowerNode,
  mappedRows,
  type NodeCompiler,
} from "./op.ts";

/** Floats of a chunk: large enough to pay off, small enough to share. */
const ELEMENTS_PER_CHUNK = 8192;

/** kernel(x, out, n, argument); most kernels do not read the last. */
export interface Unary {
  readonly op: "unary";
  readonly rows: Rows;
  readonly kernel: string;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
  readonly argument: number;
}

/** kernel(a, b, out, n). */
export interface Binary {
  readonly op: "binary";
  readonly rows: Rows;
  readonly kernel: string;
  readonly a: number;
  readonly b: number;
  readonly out: number;
  readonly cols: number;
}

/** out = x * activation(gate), or x * gate, with one gate for a row. */
export interface RowGate {
  readonly op: "row_gate";
  readonly rows: Rows;
  readonly activation: Activation | undefined;
  /** f32 [rows]. */
  readonly gate: number;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
}

/** out = x + weight, with one for each column. */
export interface AddWeight {
  readonly op: "add_weight";
  readonly rows: Rows;
  readonly x: number;
  readonly out: number;
  readonly cols: number;
  /** f32 [cols]. */
  readonly weight: number;
}

const toUnary = (
  kernel: string,
  { x, out }: { x: Value; out: Value },
  c: NodeCompiler,
  argument = 0,
): Unary | string =>
  ifWhole(
    out.cols,
    (): Unary => ({
      op: "unary",
      rows: out.rows,
      kernel,
      x: c.address(x),
      out: c.address(out),
      cols: out.cols,
      argument,
    }),
  );

const toBinary = (
  kernel: string,
  { a, b, out }: Pick<NodeOf<"add">, "a" | "b" | "out">,
  c: NodeCompiler,
): Binary | string =>
  ifWhole(
    out.cols,
    (): Binary => ({
      op: "binary",
      rows: out.rows,
      kernel,
      a: c.address(a),
      b: c.address(b),
      out: c.address(out),
      cols: out.cols,
    }),
  );

export const lowerActivate: LowerNode<"activate"> = (c, n) => toUnary(n.activation, n, c);
export const lowerScale: LowerNode<"scale"> = (c, n) => toUnary("scale", n, c, n.factor);
export const lowerSoftcap: LowerNode<"softcap"> = (c, n) => toUnary("softcap", n, c, n.cap);
export const lowerAdd: LowerNode<"add"> = (c, n) => toBinary("add", n, c);
export const lowerMul: LowerNode<"mul"> = (c, { a, b, out }) =>
  b.cols === out.cols
    ? toBinary("mul", { a, b, out }, c)
    : toRowGate({ gate: b, x: a, out, activation: undefined }, c);
export const lowerGate: LowerNode<"gate"> = (c, { activation, gate, up, out }) =>
  gate.cols === out.cols || activation === "swiglu_oai"
    ? toBinary(`${activation}_gate`, { a: gate, b: up, out }, c)
    : toRowGate({ gate, x: up, out, activation }, c);

const toRowGate = (
  {
    gate,
    x,
    out,
    activation,
  }: { gate: Value; x: Value; out: Value; activation: Activation | undefined },
  c: NodeCompiler,
): RowGate | string =>
  ifWhole(
    out.cols,
    (): RowGate => ({
      op: "row_gate",
      rows: out.rows,
      activation,
      gate: c.address(gate),
      x: c.address(x),
      out: c.address(out),
      cols: out.cols,
    }),
  );

export const lowerAddWeight: LowerNode<"add_weight"> = (c, { x, weight, out }) =>
  ifWhole(
    out.cols,
    (): AddWeight => ({
      op: "add_weight",
      rows: out.rows,
      x: c.address(x),
      out: c.address(out),
      cols: out.cols,
      weight: c.vector(weight),
    }),
  );

export const addWeight: InstructionDef<AddWeight> = {
  access: mappedRows(),
  kernels: () => ["add"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { add } = c.kernels;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      add!(i.x + at, i.weight, i.out + at, i.cols);
    });
  },
};

export const unary: InstructionDef<Unary> = {
  access: mappedRows(),
  kernels: ({ kernel }) => [kernel],
  code: ({ cols }) => [cols],
  columns: ({ rows, cols, out }) => ({ rows, cols, whole: [], writes: [out] }),

  execute(i, c) {
    const kernel = c.kernels[i.kernel]!;
    return perElements(c, i, (at, count) => kernel(i.x + at, i.out + at, count, i.argument));
  },
};

export const binary: InstructionDef<Binary> = {
  access: {
    stage: "row by row",
    of: ({ rows, a, b, out, cols }) => ({
      rows,
      reads: [area(a, cols * 4), area(b, cols * 4)],
      writes: [area(out, cols * 4)],
    }),
  },
  kernels: ({ kernel }) => [kernel],
  code: ({ cols }) => [cols],
  columns: ({ rows, cols, out }) => ({ rows, cols, whole: [], writes: [out] }),

  execute(i, c) {
    const kernel = c.kernels[i.kernel]!;
    return perElements(c, i, (at, count) => kernel(i.a + at, i.b + at, i.out + at, count));
  },
};

export const rowGate: InstructionDef<RowGate> = {
  access: {
    stage: "row by row",
    of: ({ rows, gate, x, out, cols }) => ({
      rows,
      reads: [area(gate, 4), area(x, cols * 4)],
      writes: [area(out, cols * 4)],
    }),
  },
  kernels: () => ["scale"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { scale } = c.kernels;
    const { f32 } = c.views;
    const activate = i.activation ? activations[i.activation] : (x: number) => x;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      scale!(i.x + at, i.out + at, i.cols, activate(f32[i.gate / 4 + row]!));
    });
  },
};

/** run(at, count): `count` values from byte `at` of every operand on. */
function perElements(
  c: ExecutorContext,
  { rows, cols }: { rows: Rows; cols: number },
  run: (at: number, count: number) => void,
): Executor {
  const total = () => rowCount(c, rows) * cols;
  return {
    chunks: () => Math.ceil(total() / ELEMENTS_PER_CHUNK),
    run: (chunk) => {
      const from = chunk * ELEMENTS_PER_CHUNK;
      run(from * 4, Math.min(ELEMENTS_PER_CHUNK, total() - from));
    },
    row: {
      count: () => rowCount(c, rows),
      run: (row) => run(row * cols * 4, cols),
    },
    columns: {
      count: () => rowCount(c, rows),
      run: (from, to) => {
        const count = rowCount(c, rows);
        for (let row = 0; row < count; row++) run((row * cols + from) * 4, to - from);
      },
    },
  };
}
