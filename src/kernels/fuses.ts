// Tests whether this engine's WebAssembly rounds a multiply-add once: with relaxed SIMD that is the engine's choice.

import { assembleModule, WasmFunction } from "./asm/wasm.ts";
import type { WasmFeatures } from "./features.ts";

let answer: boolean | undefined;

/** Whether f32v.fma rounds once, lowered as it is with these features. */
export function fusesMultiplyAdd({ relaxed }: Pick<WasmFeatures, "relaxed">): boolean {
  if (!relaxed) return false;
  answer ??= ask();
  return answer;
}

/** (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24, which is lost where the product is rounded first. */
function ask(): boolean {
  const f = new WasmFunction("madd", []);
  f.op("i32.const", 48);
  for (const address of [0, 16, 32]) {
    f.op("i32.const", address);
    f.op("v128.load");
  }
  f.op("f32x4.relaxed_madd");
  f.op("v128.store");
  const layout = { initial: 1, maximum: 1, shared: false, memory64: false };
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1 });
  const module = new WebAssembly.Module(assembleModule([f], layout));
  const run = new WebAssembly.Instance(module, { env: { memory } }).exports.madd as () => void;
  const floats = new Float32Array(memory.buffer);
  floats.fill(1 + 2 ** -12, 0, 8);
  floats.fill(-1 - 2 ** -11, 8, 12);
  run();
  return floats[12] !== 0;
}
