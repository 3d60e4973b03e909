// gate with nodes that it computes as it reads (inlined.ts): slices of a row in which gates and values alternate.

import type { NodeOf } from "../../../graph/graph.ts";
import { gateText } from "./elementwise.ts";
import { type Inlined, ValueTexts } from "./inlined.ts";
import { type Kernel, LANES, makeKernel, perItem } from "./kernel.ts";

export function inlinedGateKernel(
  { gate, up, out, activation }: NodeOf<"gate">,
  { before }: Inlined,
): Kernel {
  const { cols } = out;
  const values = new ValueTexts(before);
  values.read("gateAt", gate);
  values.read("upAt", up);
  return makeKernel({
    name: `gate ${activation} of slices [${cols}]`,
    bindings: [
      ...values.bindings,
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    declarations: values.functions,
    rows: out.rows,
    grid: perItem(cols),
    body: `
  let i = group.x * ${LANES}u + lane;
  if (i >= ${cols}u) { return; }
  let gated = gateAt(group.y, ${gate.cols === cols ? "i" : "0u"});
  let value = upAt(group.y, i);
  result[group.y * ${cols}u + i] = ${gateText(activation, "gated", "value")};`,
  });
}
