// silu_gate, gelu_gate, relu_gate: out = activation(gate) * up over n values. In place (out = gate or up) allowed.
//
// gelu is the one by tanh; x/2 * (1 + tanh u) is written as x / (1 + e^-2u), which keeps its digits where tanh nears -1.

import { KernelBuilder } from "../ir/builder.ts";
import type { Kernel, Reg } from "../ir/kernel.ts";
import { forEachVector, load, store, stream } from "./loops.ts";
import { sigmoidTimes } from "./math.ts";

type Activate = (k: KernelBuilder, x: Reg<"f32v">) => Reg<"f32v">;

const silu: Activate = (k, x) => sigmoidTimes(k, x, x);

const gelu: Activate = (k, x) => {
  // 2u = x * (c + 0.044715 c x^2), c = 2 sqrt(2 / pi)
  const c = 2 * Math.sqrt(2 / Math.PI);
  const square = k.op("f32v.mul", [x, x]);
  const factor = k.op("f32v.fma", [
    square,
    k.op("f32v.const", [], 0.044715 * c),
    k.op("f32v.const", [], c),
  ]);
  return sigmoidTimes(k, k.op("f32v.mul", [x, factor]), x);
};

const relu: Activate = (k, x) => k.op("f32v.max", [x, k.op("f32v.const", [], 0)]);

export const siluGate: (width: number) => Kernel = gateKernel("silu_gate", silu);
export const geluGate: (width: number) => Kernel = gateKernel("gelu_gate", gelu);
export const reluGate: (width: number) => Kernel = gateKernel("relu_gate", relu);

function gateKernel(name: string, activate: Activate): (width: number) => Kernel {
  return (width) => {
    const k = new KernelBuilder(name, width);
    const gate = stream(k, k.param("ptr", "gate"));
    const up = stream(k, k.param("ptr", "up"));
    const out = stream(k, k.param("ptr", "out"));
    const n = k.param("i32", "n");
    forEachVector(k, n, 2, [gate, up, out], (i) => {
      const activated = activate(k, load(k, gate, i));
      store(k, out, i, k.op("f32v.mul", [activated, load(k, up, i)]));
    });
    return k.finish();
  };
}
