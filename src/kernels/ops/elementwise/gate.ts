// silu_gate, gelu_gate, relu_gate, sigmoid_gate, softplus_gate, exp_gate, step_gate: out = activation(gate) * up over n values; and
// swiglu_oai_gate, which clamps both (graph.ts). In place (out = gate or up) allowed.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { forEachVector, load, store, stream } from "../loops.ts";
import { sigmoidTimes } from "../math.ts";
import {
  type Activate,
  activateExp,
  activateGelu,
  activateRelu,
  activateReluSquared,
  activateSigmoid,
  activateSilu,
  activateSoftplus,
  activateStep,
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
export const stepGate: (width: number) => Kernel = gateKernel("step_gate", activateStep);

export const swigluOaiGate: (width: number) => Kernel = pairKernel(
  "swiglu_oai_gate",
  (k, gate, up) => {
    const [high, low] = [k.op("f32v.const", [], 7), k.op("f32v.const", [], -7)];
    const g = k.op("f32v.min", [gate, high]);
    const u = k.op("f32v.max", [k.op("f32v.min", [up(), high]), low]);
    const inner = sigmoidTimes(k, k.op("f32v.mul", [g, k.op("f32v.const", [], 1.702)]), g);
    return k.op("f32v.mul", [inner, k.op("f32v.add", [u, k.op("f32v.const", [], 1)])]);
  },
);

function gateKernel(name: string, activate: Activate): (width: number) => Kernel {
  return pairKernel(name, (k, gate, up) => k.op("f32v.mul", [activate(k, gate), up()]));
}

/** `up` is loaded where it is called: after the activation, registers are free again. */
function pairKernel(
  name: string,
  combine: (k: KernelBuilder, gate: Reg<"f32v">, up: () => Reg<"f32v">) => Reg<"f32v">,
): (width: number) => Kernel {
  return (width) => {
    const k = new KernelBuilder(name, width);
    const gate = stream(k, k.param("ptr", "gate"));
    const up = stream(k, k.param("ptr", "up"));
    const out = stream(k, k.param("ptr", "out"));
    const n = k.param("i32", "n");
    forEachVector(k, n, 2, [gate, up, out], (i) => {
      store(
        k,
        out,
        i,
        combine(k, load(k, gate, i), () => load(k, up, i)),
      );
    });
    return k.finish();
  };
}
