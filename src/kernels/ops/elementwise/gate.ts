// silu_gate, gelu_gate, relu_gate, sigmoid_gate, softplus_gate, exp_gate: out = activation(gate) * up over n values. In place (out = gate or up) allowed.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";
import {
  type Activate,
  activateExp,
  activateGelu,
  activateRelu,
  activateReluSquared,
  activateSigmoid,
  activateSilu,
  activateSoftplus,
} from "./activate.ts";

export const siluGate: (width: number) => Kernel = gateKernel("silu_gate", activateSilu);
export const geluGate: (width: number) => Kernel = gateKernel("gelu_gate", activateGelu);
export const reluGate: (width: number) => Kernel = gateKernel("relu_gate", activateRelu);
export const reluSquaredGate: (width: number) => Kernel = gateKernel(
  "relu_squared_gate",
  activateReluSquared,
);
export const sigmoidGate: (width: number) => Kernel = gateKernel("sigmoid_gate", activateSigmoid);
export const softplusGate: (width: number) => Kernel = gateKernel(
  "softplus_gate",
  activateSoftplus,
);
export const expGate: (width: number) => Kernel = gateKernel("exp_gate", activateExp);

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
