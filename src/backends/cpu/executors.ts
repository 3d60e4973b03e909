// What each instruction of a program does, on whichever thread: how many chunks its work has in this step, and what one
// chunk is. Chunks are independent; threads take them as they come (team.ts), so a thread that is slow or busy elsewhere
// takes fewer.

import type { Rows } from "../../graph/graph.ts";
import { KV_BLOCK_TOKENS } from "../../graph/step.ts";
import { ropeTable } from "../../kernels/ops/rope.ts";
import { makeAttention } from "./execute-attention.ts";
import { matmulMakers } from "./execute-matmul.ts";
import {
  type Executor,
  type ExecutorContext,
  type MakeExecutor,
  perRow,
  rowCount,
} from "./executor.ts";
import type { Instruction, InstructionKind, InstructionOf } from "./program.ts";
import { makeRowReader } from "./table-rows.ts";

export type { Executor, ExecutorContext, Kernels } from "./executor.ts";

/** Floats of an elementwise chunk: large enough to be worth taking, small enough to share. */
const ELEMENTS_PER_CHUNK = 8192;

const makers: { readonly [K in InstructionKind]: MakeExecutor<K> } = {
  leader: ({ index }, { leader }) => ({
    leaderOnly: true,
    chunks: () => 1,
    run: () => leader![index]!(),
  }),

  embed: (i, c) => {
    const { step } = c.program;
    const { table } = i;
    const token = (row: number) => c.views.i32[step.tokens / 4 + row]!;
    if (i.kernel !== undefined && table.layout === "raw") {
      const kernel = c.kernels[i.kernel]!;
      const { at, rowBytes, cols } = table;
      return perRow(c, "tokens", (row) =>
        kernel(at + token(row) * rowBytes, i.out + row * cols * 4, cols),
      );
    }
    const read = makeRowReader(table, c.views);
    const { f32 } = c.views;
    return perRow(c, "tokens", (row) => read(token(row), f32, i.out / 4 + row * table.cols));
  },

  select: (i, c) => {
    const { copy } = c.kernels;
    const rows = c.program.step.outputRows / 4;
    return perRow(c, "outputs", (row) => {
      const from = c.views.i32[rows + row]!;
      copy!(i.x + from * i.cols * 4, i.out + row * i.cols * 4, i.cols);
    });
  },

  rms_norm: (i, c) => {
    const { rms_norm } = c.kernels;
    const groups = i.cols / i.size;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      rms_norm!(i.x + at, i.weight, i.out + at, groups, i.size, i.eps);
    });
  },

  layer_norm: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      kernel(i.x + at, i.weight, i.out + at, i.cols, i.eps, i.bias);
    });
  },

  softmax: (i, c) => {
    const { softmax } = c.kernels;
    return perRow(c, i.rows, (row) => {
      const at = row * i.cols * 4;
      softmax!(i.x + at, i.out + at, i.cols, 1);
    });
  },

  unary: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    return perElements(c, i, (at, count) => kernel(i.x + at, i.out + at, count, i.argument));
  },

  binary: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    return perElements(c, i, (at, count) => kernel(i.a + at, i.b + at, i.out + at, count));
  },

  rope_table: (i, c) => {
    const pairs = i.frequencies.length;
    const [cos, sin] = [new Float32Array(pairs), new Float32Array(pairs)];
    const { f32, i32 } = c.views;
    const positions = c.program.step.positions / 4;
    return perRow(c, "tokens", (row) => {
      const position = i32[positions + row]!;
      for (let pair = 0; pair < pairs; pair++) {
        const turned = Math.fround(position * i.frequencies[pair]!);
        const angle = Math.fround(turned / (i.factors < 0 ? 1 : f32[i.factors / 4 + pair]!));
        cos[pair] = Math.fround(Math.cos(angle)) * i.magnitude;
        sin[pair] = Math.fround(Math.sin(angle)) * i.magnitude;
      }
      ropeTable(i.layout, cos, sin, f32, i.table / 4 + row * i.tableSize);
    });
  },

  rope: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    const heads = i.cols / i.headDim;
    return perRow(c, "tokens", (row) => {
      const at = row * i.cols * 4;
      const table = i.table + row * i.tableSize * 4;
      kernel(i.x + at, i.out + at, table, heads, i.headDim, i.dims);
    });
  },

  kv_write: (i, c) => {
    const kernel = c.kernels[i.kernel]!;
    const { step } = c.program;
    return perRow(c, "tokens", (row) => {
      const position = c.views.i32[step.positions / 4 + row]!;
      const entry = i.tables / 4 + row * step.tableLength + Math.floor(position / KV_BLOCK_TOKENS);
      const cacheRow = c.views.i32[entry]! * KV_BLOCK_TOKENS + (position % KV_BLOCK_TOKENS);
      const at = row * i.cols * 4;
      kernel(i.k + at, i.keys + cacheRow * i.rowBytes, i.cols);
      kernel(i.v + at, i.values + cacheRow * i.rowBytes, i.cols);
    });
  },

  attention: makeAttention,

  ...matmulMakers,
};

/** What instructions call besides the kernels that their fields name. */
const impliedKernels: { readonly [K in InstructionKind]?: (i: InstructionOf<K>) => string[] } = {
  rms_norm: () => ["rms_norm"],
  softmax: () => ["softmax"],
  select: () => ["copy"],
  attention: ({ kvType }) => {
    const parts = ["attn_scores", "attn_scores4", "attn_mix", "attn_mix4"];
    return ["softmax", ...parts.map((part) => `${part}_${kvType}`)];
  },
};

/** The kernels that an instruction calls, by name. */
export function kernelsOf(instruction: Instruction): string[] {
  const implied = impliedKernels[instruction.op] as ((i: Instruction) => string[]) | undefined;
  return [...(implied?.(instruction) ?? []), ...namedKernels(instruction)];
}

/** Instructions whose kernels are made for the target, and are machine code where it has any; all others' are WebAssembly. */
const forTarget: ReadonlySet<InstructionKind> = new Set([
  "quantize",
  "matmul_blocks",
  "matmul_floats",
]);

export function isForTarget({ op }: Instruction): boolean {
  return forTarget.has(op);
}

/** What stands in the fields of an instruction, of its variants, and of what these have for each width of a tile. */
function namedKernels(holder: object): string[] {
  const fields = holder as Partial<Record<string, string>>;
  const named = ["kernel", "vector", "vectorStreams", "vectorHalf", "widen"];
  const { variants = [], matrix = [] } = holder as Partial<
    Record<"variants" | "matrix", readonly object[]>
  >;
  return [
    ...named.flatMap((field) => fields[field] ?? []),
    ...[...variants, ...matrix].flatMap(namedKernels),
  ];
}

export function makeExecutors(context: ExecutorContext): Executor[] {
  return context.program.instructions.map((instruction) => {
    const make = makers[instruction.op] as MakeExecutor<InstructionKind>;
    return make(instruction, context);
  });
}

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
  };
}
