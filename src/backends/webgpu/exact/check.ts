// Checks whether a device computes the functions of arithmetic.ts: some thousand numbers through them, against the same
// in JavaScript. First with the device's own fma(), then with one of error-free transformations; a device that contracts, reorders
// or rounds otherwise even then is refused before anything is read.

import { UsageError } from "../../../base/errors.ts";
import type { Arithmetic } from "../../../kernels/arithmetic.ts";
import { fusedMultiplyAdd } from "../../../kernels/ir/meanings.ts";
import type { GpuDevice } from "../device.ts";
import { MAP_READ, usage } from "../usage.ts";
import {
  divideText,
  type ExactArithmetic,
  exponentialText,
  multiplyAddText,
  squareRootText,
  tangentText,
} from "./arithmetic.ts";

const COUNT = 4096;

/** Expressions of a, b and c, and their expected values. */
const checks: readonly {
  readonly name: string;
  readonly wgsl: string;
  readonly expected: (a: number, b: number, c: number, by: MultiplyAdd) => number;
}[] = [
  {
    name: "a multiply-add",
    wgsl: "multiplyAdd(a, b, c)",
    expected: (a, b, c, by) => by(a, b, c),
  },
  {
    name: "a product that is rounded before a sum",
    wgsl: "rounded(a * b) + c",
    expected: (a, b, c) => separate(a, b, c),
  },
  { name: "a quotient", wgsl: "divide(a, b)", expected: (a, b) => Math.fround(a / b) },
  {
    name: "a quotient by 127",
    wgsl: "divide(a, 127.0)",
    expected: (a) => Math.fround(a / 127),
  },
  {
    name: "a quotient of 127",
    wgsl: "divide(127.0, b)",
    expected: (_, b) => Math.fround(127 / b),
  },
  {
    name: "a square root",
    wgsl: "squareRoot(abs(a))",
    expected: (a) => Math.fround(Math.sqrt(Math.abs(a))),
  },
  {
    name: "an exponential",
    wgsl: "exponential(b)",
    expected: (_, b, __, by) => exponential(b, by),
  },
  {
    name: "a hyperbolic tangent",
    wgsl: "hyperbolicTangent(b)",
    expected: (_, b, __, by) => hyperbolicTangent(b, by),
  },
  { name: "a rounding to whole numbers", wgsl: "round(b)", expected: (_, b) => halfEven(b) },
  {
    name: "a sum of four in order",
    wgsl: "((a + b) + c) + a",
    expected: (a, b, c) => Math.fround(Math.fround(Math.fround(a + b) + c) + a),
  },
];

type MultiplyAdd = (a: number, b: number, c: number) => number;

const separate: MultiplyAdd = (a, b, c) => Math.fround(Math.fround(a * b) + c);

function halfEven(x: number): number {
  const low = Math.floor(x);
  if (x - low !== 0.5) return Math.round(x);
  return low % 2 === 0 ? low : low + 1;
}

const f = Math.fround;

// As src/kernels/ops/math.ts.

function exponential(value: number, by: MultiplyAdd): number {
  const { n, r } = reduced(Math.min(Math.max(value, f(-87.2)), f(88.8)), 126, by);
  let y = f(2 * 0.00138143);
  for (const c of [0.00836885, 0.0416684, 0.1666652, 0.49999993, 1, 1]) y = by(r, y, f(2 * c));
  return f(y * 2 ** (n - 1));
}

function hyperbolicTangent(value: number, by: MultiplyAdd): number {
  const { n, r } = reduced(f(2 * Math.min(Math.max(value, -10), 10)), 127, by);
  let y = f(0.00138143);
  for (const c of [0.00836885, 0.0416684, 0.1666652, 0.49999993]) y = by(r, y, f(c));
  const power = 2 ** n;
  const m = by(by(f(r * r), y, r), power, f(power - 1));
  return f(m / f(m + 2));
}

/** x = n ln 2 + r. */
function reduced(x: number, bias: number, by: MultiplyAdd): { n: number; r: number } {
  const constant = 1.5 * 2 ** 23 + bias;
  const n = f(by(x, f(Math.LOG2E), constant) - constant);
  return { n, r: by(n, f(2.1219444005469057e-4), by(n, f(-0.693359375), x)) };
}

/** The device's means for the CPU's arithmetic; throws if none of them gives the CPU's bits. */
export async function checkExactness(
  gpu: GpuDevice,
  arithmetic: Arithmetic,
): Promise<ExactArithmetic> {
  const inputs = [0, 1, 2].map((i) => numbers(i));
  let others: string[] = [];
  for (const deviceFuses of [true, false]) {
    const form = { ...arithmetic, deviceFuses };
    others = otherBits(await compute(gpu, form, inputs), arithmetic, inputs);
    if (others.length === 0) return form;
  }
  throw new UsageError(
    `exact: the GPU "${gpu.facts.name}" computes otherwise than the processor: ${others.join(", ")}. So its texts can differ from the processor's. Use \`exact: false\`, or \`backend: "cpu"\``,
  );
}

/** The checks whose bits are others, each with a number. */
function otherBits(
  results: Float32Array,
  arithmetic: Arithmetic,
  inputs: readonly Float32Array[],
): string[] {
  const by = arithmetic.fused ? fusedMultiplyAdd : separate;
  return checks.flatMap(({ name, expected }, check) => {
    for (let i = 0; i < COUNT; i++) {
      const [a, b, c] = inputs.map((values) => values[i]!) as [number, number, number];
      const [got, right] = [results[check * COUNT + i]!, expected(a, b, c, by)];
      if (got !== right) return [`${name} (${got} instead of ${right})`];
    }
    return [];
  });
}

/** Numbers of all magnitudes that matter; every fourth c takes most of a * b away, so that a fused multiply-add shows. */
function numbers(which: number): Float32Array<ArrayBuffer> {
  let state = 12345 + which;
  const next = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const magnitude = [20, 12, 20][which]!;
  const plain = Float32Array.from({ length: COUNT }, () => {
    return (next() < 0.5 ? -1 : 1) * (1 + next()) * 2 ** Math.floor((next() - 0.5) * magnitude);
  });
  if (which !== 2) return plain;
  const [a, b] = [numbers(0), numbers(1)];
  return plain.map((c, i) => (i % 4 === 0 ? -Math.fround(a[i]! * b[i]!) : c));
}

async function compute(
  gpu: GpuDevice,
  arithmetic: ExactArithmetic,
  inputs: readonly Float32Array<ArrayBuffer>[],
): Promise<Float32Array> {
  const { device } = gpu;
  const made: GPUBuffer[] = [];
  const buffer = (size: number, bits: number): GPUBuffer => {
    const one = device.createBuffer({ label: "exactness", size, usage: bits });
    made.push(one);
    return one;
  };
  const bytes = checks.length * COUNT * 4;
  // The three inputs behind each other, and the word that is 0.
  const data = buffer(3 * COUNT * 4 + 4, usage.storage | usage.copyTarget);
  const result = buffer(bytes, usage.storage | usage.copySource);
  const read = buffer(bytes, usage.mapRead | usage.copyTarget);
  inputs.forEach((values, i) => {
    device.queue.writeBuffer(data, i * COUNT * 4, values);
  });
  const module = device.createShaderModule({ label: "exactness", code: textOf(arithmetic) });
  const pipeline = await gpu.wait(
    device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } }),
  );
  const bindings = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [data, result].map((each, binding) => ({ binding, resource: { buffer: each } })),
  });
  const commands = device.createCommandEncoder();
  const pass = commands.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, bindings);
  pass.dispatchWorkgroups(COUNT / 64);
  pass.end();
  commands.copyBufferToBuffer(result, 0, read, 0, bytes);
  device.queue.submit([commands.finish()]);
  await gpu.wait(read.mapAsync(MAP_READ));
  const values = new Float32Array(read.getMappedRange().slice(0));
  for (const each of made) each.destroy();
  return values;
}

function textOf(arithmetic: ExactArithmetic): string {
  const zero = `data[${3 * COUNT}u]`;
  const input = (i: number): string => `bitcast<f32>(data[${i * COUNT}u + i])`;
  return `
@group(0) @binding(0) var<storage, read> data: array<u32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;
${multiplyAddText(arithmetic, zero)}${divideText(arithmetic, zero)}${squareRootText(arithmetic)}${exponentialText}${tangentText}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  let a = ${input(0)};
  let b = ${input(1)};
  let c = ${input(2)};
  ${checks.map(({ wgsl }, n) => `result[${n * COUNT}u + i] = ${wgsl};`).join("\n  ")}
}
`;
}
