// silu, gelu, relu, relu_squared, sigmoid, softplus, exp, step: out = activation(x) over n values. In place allowed. gate.ts has them times another value.
//
// gelu is the tanh approximation. x/2 * (1 + tanh u) is computed as x / (1 + e^-2u), which keeps its digits where tanh is
// near -1.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";
import { exp as expOf, sigmoidTimes, softplus as softplusOf } from "../math.ts";

export type Activate = (k: KernelBuilder, x: Reg<"f32v">) => Reg<"f32v">;

export const activateSilu: Activate = (k, x) => sigmoidTimes(k, x, x);

export const activateGelu: Activate = (k, x) => {
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

export const activateRelu: Activate = (k, x) => k.op("f32v.max", [x, k.op("f32v.const", [], 0)]);

export const activateReluSquared: Activate = (k, x) => {
  const positive = activateRelu(k, x);
  return k.op("f32v.mul", [positive, positive]);
};

export const activateSigmoid: Activate = (k, x) => sigmoidTimes(k, x, k.op("f32v.const", [], 1));

export const activateSoftplus: Activate = softplusOf;
export const activateExp: Activate = expOf;

/** The smallest number above zero times this, twice, is above 1. */
const STEEP = 3e38;

export const activateStep: Activate = (k, x) => {
  const steep = k.op("f32v.const", [], STEEP);
  const high = k.op("f32v.mul", [k.op("f32v.mul", [activateRelu(k, x), steep]), steep]);
  return k.op("f32v.min", [high, k.op("f32v.const", [], 1)]);
};

export const silu: (width: number) => Kernel = activateKernel("silu", activateSilu);
export const gelu: (width: number) => Kernel = activateKernel("gelu", activateGelu);
export const relu: (width: number) => Kernel = activateKernel("relu", activateRelu);
export const reluSquared: (width: number) => Kernel = activateKernel(
  "relu_squared",
  activateReluSquared,
);
export const sigmoid: (width: number) => Kernel = activateKernel("sigmoid", activateSigmoid);
export const softplus: (width: number) => Kernel = activateKernel("softplus", activateSoftplus);
export const exp: (width: number) => Kernel = activateKernel("exp", activateExp);
export const step: (width: number) => Kernel = activateKernel("step", activateStep);

function activateKernel(name: string, activate: Activate): (width: number) => Kernel {
  return (width) => {
    const k = new KernelBuilder(name, width);
    const x = stream(k, k.param("ptr", "x"));
    const out = stream(k, k.param("ptr", "out"));
    const n = k.param("i32", "n");
    forEachVector(k, n, 2, [x, out], (i) => store(k, out, i, activate(k, load(k, x, i))));
    return k.finish();
  };
}
