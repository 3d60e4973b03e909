// The register-tiled matmul kernels through WebAssembly: every packed type, every tile shape, both loop orders,
// compared with the plain matmul of the rounded weights and activations.

import { describe, test } from "vitest";
import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import type { Dot4 } from "../../src/kernels/ir/meanings.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul/dot4.ts";
import { quantizeActivationsKernel } from "../../src/kernels/ops/matmul/quantize-activations.ts";
import { activationBlockBytes, rowPanelBytes } from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { wasmTarget } from "../../src/kernels/target.ts";
import { expectRows, makeProblem, packAll } from "./matmul-problem.ts";

const features = detectWasmFeatures();
const pages = 80;
const [W, X, Q, OUT, CODEBOOK] = [0, 1 << 20, 2 << 20, 3 << 20, 4 << 20];

function compile(kernels: Kernel[], relaxed: boolean, memory: WebAssembly.Memory) {
  const functions = kernels.map((kernel) => lowerToWasm(kernel, { relaxed, memory64: false }));
  const limits = { initial: pages, maximum: pages, shared: false, memory64: false };
  const module = new WebAssembly.Module(assembleModule(functions, limits));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  return exports as Record<string, (...args: number[]) => void>;
}

/** Which dot4 semantics can be tried here: the widened one everywhere, the others where the engine has them. */
function dot4s(): { dot4: Dot4; relaxed: boolean }[] {
  const all: { dot4: Dot4; relaxed: boolean }[] = [
    { dot4: "i7", relaxed: false },
    { dot4: "words", relaxed: false },
  ];
  if (features.relaxed) all.push({ dot4: "i7", relaxed: true });
  if (features.relaxed && features.dot4 !== "i7") all.push({ dot4: features.dot4, relaxed: true });
  return all;
}

const styles = [
  { style: "compact", replicated: false, words: false },
  { style: "replicated", replicated: true, words: false },
  { style: "words", replicated: false, words: true },
] as const;

describe.each(packedTypes())("%s", (type) => {
  const packing = packingOf(type)!;
  const cols = packing.activationSpan === 8 ? 512 : 96;

  for (const { dot4, relaxed } of dot4s()) {
    for (const { style, replicated, words } of styles) {
      test(`dot4 ${dot4}, ${relaxed ? "relaxed" : "plain"}, ${style}`, () => {
        const problem = makeProblem(type, 35, cols, 9);
        const target = wasmTarget({ dot4, vectorRegisters: 16 });
        const layout = layoutFor(packing, target);
        const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
        const tiles = packAll(type, target, problem, memory.buffer, W, CODEBOOK);
        const tokens = 4;
        const vector = blockMatmulKernel({
          name: "vector",
          layout,
          groups: 4,
          tokens: 1,
          replicated,
          words,
          order: "vector",
        });
        const streams = blockMatmulKernel({
          name: "streams",
          layout,
          groups: 4,
          tokens: 1,
          replicated,
          words,
          order: "vector",
          streams: 3,
        });
        const few = blockMatmulKernel({
          name: "few",
          layout,
          groups: 2,
          tokens,
          replicated,
          words,
          order: "vector",
          streams: 3,
        });
        const matrix = [1, 2, 4].map((groups) =>
          blockMatmulKernel({
            name: `matrix${groups}`,
            layout,
            groups,
            tokens,
            replicated,
            words,
            order: "matrix",
          }),
        );
        const quantize = quantizeActivationsKernel({
          name: "quantize",
          span: packing.activationSpan,
          replicated,
          words,
          target,
        });
        const call = compile([vector, streams, few, ...matrix, quantize], relaxed, memory);
        const blockBytes = activationBlockBytes(replicated, 16, words);
        const blocks = cols / 32;
        new Float32Array(memory.buffer).set(problem.x, X / 4);
        const spans = blocks / packing.activationSpan;
        const weightSpans = blocks / layout.spanBlocks;
        const out = new Float32Array(memory.buffer, OUT, 9 * 48);

        // One token at a time.
        for (let t = 0; t < problem.tokens; t++) {
          call.quantize!(X + t * cols * 4, Q, spans, blockBytes);
          call.vector!(W, Q, OUT + t * 48 * 4, weightSpans, tiles, CODEBOOK);
        }
        expectRows(problem, out);

        // The same, the three tiles in turns.
        out.fill(0);
        for (let t = 0; t < problem.tokens; t++) {
          const apart = rowPanelBytes(layout, cols);
          call.quantize!(X + t * cols * 4, Q, spans, blockBytes);
          call.streams!(W, Q, OUT + t * 48 * 4, weightSpans, 1, CODEBOOK, apart, 16 * 4);
        }
        expectRows(problem, out);

        // Eight tokens in two tiles of four; the ninth is left.
        for (let t = 0; t < 8; t++) {
          const tile = Math.floor(t / tokens) * tokens * blocks * blockBytes;
          const target = Q + tile + (t % tokens) * blockBytes;
          call.quantize!(X + t * cols * 4, target, spans, tokens * blockBytes);
        }
        // All groups, the three tiles in turns.
        out.fill(0, 0, 8 * 48);
        for (let t = 0; t < 8; t += tokens) {
          const x = Q + t * blocks * blockBytes;
          const apart = rowPanelBytes(layout, cols);
          call.few!(W, x, OUT + t * 48 * 4, weightSpans, 1, CODEBOOK, 48 * 4, apart, 16 * 4);
        }
        expectRows(problem, out);
        // One tile after the other, by each number of groups.
        for (const groups of [1, 2, 4]) {
          out.fill(0, 0, 8 * 48);
          for (let tile = 0; tile < tiles; tile++) {
            for (let g = 0; g < 4; g += groups) {
              const w = W + tile * rowPanelBytes(layout, cols);
              call[`matrix${groups}`]!(
                w,
                Q,
                OUT + (tile * 16 + g * 4) * 4,
                weightSpans,
                2,
                CODEBOOK,
                48 * 4,
                g,
              );
            }
          }
          expectRows(problem, out);
        }
      });
    }
  }
});
