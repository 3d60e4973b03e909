// How fast the kernels are that are not matmuls, next to the same work in plain TypeScript. Not a test: it
// asserts nothing. `node --no-liftoff bench/kernels.ts [part of a name]`: without the flag the first kernels may be
// measured as the engine's quick compiler left them. Times are the best of many short rounds, because the machine may be
// busy; GB/s counts the bytes read and written once, GFLOPS a multiply-add as two.

import { f16 } from "../src/dtypes/f16.ts";
import { q8_0 } from "../src/dtypes/q8_0.ts";
import { assembleModule } from "../src/kernels/asm/wasm.ts";
import { lowerToWasm } from "../src/kernels/lower/wasm.ts";
import { ropeTable } from "../src/kernels/ops/elementwise/rope.ts";
import { elementwiseKernels } from "../src/kernels/ops/elementwise-table.ts";

const pages = 1024;
const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
const bytes = new Uint8Array(memory.buffer);
const floats = new Float32Array(memory.buffer);
const ints = new Int32Array(memory.buffer);

const functions = elementwiseKernels.map((build) =>
  lowerToWasm(build(16), { relaxed: true, memory64: false }),
);
const module = assembleModule(functions, {
  initial: pages,
  maximum: pages,
  shared: false,
  memory64: false,
});
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(module), { env: { memory } });

/** Addresses: far enough apart for everything below. */
const [x, y, out, table, scores, cache] = [1, 2, 3, 4, 5, 8].map((mb) => mb * 2 ** 20) as [
  number,
  number,
  number,
  number,
  number,
  number,
];

interface Case {
  name: string;
  kernel: string;
  args: number[];
  /** The same work, plainly. */
  plain: () => void;
  bytes: number;
  flops?: number;
}

/** Seconds per call: the best of 50 rounds of about 2 ms, after a warm-up of as long. */
function seconds(work: () => void): number {
  let calls = 1;
  while (round(work, calls) < 0.002 && calls < 1e6) calls *= 2;
  for (let i = 0; i < 50; i++) round(work, calls);
  return Math.min(...Array.from({ length: 50 }, () => round(work, calls))) / calls;
}

function round(work: () => void, calls: number): number {
  const start = performance.now();
  for (let i = 0; i < calls; i++) work();
  return (performance.now() - start) / 1000;
}

function at(address: number, n: number): Float32Array {
  return floats.subarray(address / 4, address / 4 + n);
}

function fill(address: number, n: number): void {
  for (let i = 0; i < n; i++) floats[address / 4 + i] = Math.sin(i * 1.7) * 2;
}

function map(n: number, f: (i: number) => number): () => void {
  const target = at(out, n);
  return () => {
    for (let i = 0; i < n; i++) target[i] = f(i);
  };
}

function elementwise(n: number): Case[] {
  const [a, b, o] = [at(x, n), at(y, n), at(out, n)];
  const gates: [string, (v: number) => number][] = [
    ["silu_gate", (v) => v / (1 + Math.exp(-v))],
    ["gelu_gate", (v) => 0.5 * v * (1 + Math.tanh(0.7978845608 * v * (1 + 0.044715 * v * v)))],
    ["relu_gate", (v) => Math.max(v, 0)],
  ];
  return [
    {
      name: "rms_norm",
      args: [x, y, out, 1, n, 1e-5],
      plain: () => {
        let squares = 0;
        for (let i = 0; i < n; i++) squares += a[i]! * a[i]!;
        const factor = 1 / Math.sqrt(squares / n + 1e-5);
        for (let i = 0; i < n; i++) o[i] = a[i]! * factor * b[i]!;
      },
      bytes: 12 * n,
    },
    ...gates.map(([name, f]) => ({
      name,
      args: [x, y, out, n],
      plain: map(n, (i) => f(a[i]!) * b[i]!),
      bytes: 12 * n,
    })),
    { name: "add", args: [x, y, out, n], plain: map(n, (i) => a[i]! + b[i]!), bytes: 12 * n },
    { name: "mul", args: [x, y, out, n], plain: map(n, (i) => a[i]! * b[i]!), bytes: 12 * n },
    { name: "scale", args: [x, out, n, 0.5], plain: map(n, (i) => a[i]! * 0.5), bytes: 8 * n },
    { name: "copy", args: [x, out, n], plain: () => o.set(a), bytes: 8 * n },
    {
      name: "softmax",
      args: [x, out, n, 1],
      plain: () => {
        let max = Number.NEGATIVE_INFINITY;
        for (let i = 0; i < n; i++) max = Math.max(max, a[i]!);
        let sum = 0;
        for (let i = 0; i < n; i++) sum += o[i] = Math.exp(a[i]! - max);
        for (let i = 0; i < n; i++) o[i]! *= 1 / sum;
      },
      bytes: 8 * n,
    },
    {
      name: "store_f16",
      args: [x, out, n],
      plain: () => f16.quantize!(a, 0, bytes, out, n),
      bytes: 6 * n,
    },
    {
      name: "quantize_kv_q8_0",
      args: [x, out, n],
      plain: () => q8_0.quantize!(a, 0, bytes, out, n / 32),
      bytes: 4 * n + (34 * n) / 32,
    },
  ].map((c) => ({ ...c, kernel: c.name, name: `${c.name} ${n}` }));
}

function ropes(heads: number, headDim: number): Case[] {
  const n = heads * headDim;
  const [a, o] = [at(x, n), at(out, n)];
  const angles = Array.from({ length: headDim / 2 }, (_, i) => 100 * 0.8 ** i);
  const [cos, sin] = [Float32Array.from(angles, Math.cos), Float32Array.from(angles, Math.sin)];
  return (["interleaved", "half"] as const).map((layout, l) => {
    const address = table + l * 65536;
    ropeTable(layout, cos, sin, floats, address / 4);
    const [stride, distance] = layout === "half" ? [1, headDim / 2] : [2, 1];
    return {
      name: `rope_${layout} ${heads}x${headDim}`,
      kernel: `rope_${layout}`,
      args: [x, out, address, heads, headDim, headDim],
      plain: () => {
        for (let head = 0; head < n; head += headDim) {
          for (let pair = 0; pair < headDim / 2; pair++) {
            const i = head + pair * stride;
            o[i] = a[i]! * cos[pair]! - a[i + distance]! * sin[pair]!;
            o[i + distance] = a[i]! * sin[pair]! + a[i + distance]! * cos[pair]!;
          }
        }
      },
      bytes: 8 * n,
    };
  });
}

/** One head (or four that share it) of a cache with 4 KV heads. */
function attention(context: number, headDim: number): Case[] {
  const cols = 4 * headDim;
  const blocks = context / 32;
  for (let i = 0; i < blocks; i++) ints[table / 4 + i] = (i * 7) % blocks;
  const formats: [string, number][] = [
    ["f32", 4],
    ["f16", 2],
    ["q8_0", 34 / 32],
  ];
  const [q, s, o] = [at(x, headDim), at(scores, context), at(out, headDim)];
  const rows = at(cache, context * cols);
  return formats.flatMap(([format, valueBytes]) =>
    [1, 4].flatMap((queries) => {
      const rowBytes = cols * valueBytes;
      const shared = [blocks, 0, rowBytes, headDim * valueBytes, headDim];
      const plainScores = (): void => {
        for (let p = 0; p < context; p++) {
          let sum = 0;
          for (let i = 0; i < headDim; i++) sum += q[i]! * rows[p * cols + i]!;
          s[p] = sum;
        }
      };
      const plainMix = (): void => {
        for (let i = 0; i < headDim; i++) {
          let sum = 0;
          for (let p = 0; p < context; p++) sum += s[p]! * rows[p * cols + i]!;
          o[i] = sum;
        }
      };
      const size = {
        bytes: context * headDim * valueBytes,
        flops: 2 * queries * context * headDim,
      };
      const suffix = `${queries > 1 ? queries : ""}_${format}`;
      return [
        {
          name: `attn_scores${suffix} ${context}x${headDim}`,
          kernel: `attn_scores${suffix}`,
          args: [x, cache, table, scores, ...shared, headDim * 4, context * 4],
          plain: plainScores,
          ...size,
        },
        {
          name: `attn_mix${suffix} ${context}x${headDim}`,
          kernel: `attn_mix${suffix}`,
          args: [scores, cache, table, out, ...shared, 1, context * 4, headDim * 4],
          plain: plainMix,
          ...size,
        },
      ];
    }),
  );
}

const wanted = process.argv[2] ?? "";
const cases = [
  () => elementwise(2048),
  () => ropes(32, 64),
  () => attention(512, 64),
  () => attention(2048, 128),
];
for (const make of cases) {
  for (const { name, kernel, args, plain, bytes, flops } of make()) {
    if (!name.includes(wanted)) continue;
    fill(x, 8192);
    fill(y, 8192);
    fill(scores, 8192);
    if (kernel.startsWith("attn")) fillCache(kernel);
    const run = exports[kernel] as (...args: number[]) => void;
    const time = seconds(() => run(...args));
    const queries = kernel.includes("4_") ? 4 : 1;
    const plainTime = seconds(plain) * queries;
    const speed = `${(bytes / time / 1e9).toFixed(1).padStart(6)} GB/s`;
    const flopSpeed = flops
      ? `${(flops / time / 1e9).toFixed(1).padStart(6)} GFLOPS`
      : " ".repeat(13);
    const micros = `${(time * 1e6).toFixed(2).padStart(8)} µs`;
    console.log(
      `${name.padEnd(28)} ${micros} ${speed} ${flopSpeed} ${(plainTime / time).toFixed(1).padStart(6)} x plain`,
    );
  }
}

/** Every cache format reads these bytes as ordinary numbers. */
function fillCache(kernel: string): void {
  if (kernel.endsWith("f32")) fill(cache, 2 ** 21);
  else bytes.fill(0x2e, cache, cache + 2 ** 23);
}
