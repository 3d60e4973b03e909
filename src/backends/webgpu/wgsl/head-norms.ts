// rms_norm of heads, of one value or of two (queries and keys) in one dispatch, with nodes that are computed as they are read and stored. A workgroup
// computes a head.

import type { NodeOf } from "../../../graph/graph.ts";
import { type Inlined, ValueTexts } from "./inlined.ts";
import { float, type Kernel, LANES, makeKernel, sumText } from "./kernel.ts";

export interface InlinedNorm {
  readonly node: NodeOf<"rms_norm">;
  readonly inlined: Inlined;
}

/** All of them have rows of the same kind, and heads of the same size. */
export function headNormsKernel(norms: readonly InlinedNorm[]): Kernel {
  const { out, weight } = norms[0]!.node;
  const size = weight.shape[0]!;
  const values = new ValueTexts(norms.flatMap(({ inlined }) => inlined.before));
  const heads = norms.map(({ node }) => node.x.cols / size);
  const scales = norms.map(({ node }) => values.vector(node.weight));
  const results = norms.map(({ node, inlined }, i) => {
    values.read(`inputAt${i}`, node.x);
    return values.stored(node.out, inlined.after, String(i));
  });
  const each = (text: (i: number) => string): string => {
    if (norms.length === 1) return text(0);
    return `if (isFirst) { ${text(0)} } else { ${text(1)} }`;
  };
  const held = Array.from({ length: Math.ceil(size / LANES) }, (_, i) => i);
  const isSure = (i: number): boolean => (i + 1) * LANES <= size;
  const inHead = (i: number, text: string): string =>
    isSure(i) ? text : `if (lane + ${i * LANES}u < ${size}u) { ${text} }`;
  const at = (i: number): string => `first + lane + ${i * LANES}u`;
  return makeKernel({
    name: `rms_norm of heads [${heads.join(" and ")} of ${size}]`,
    bindings: [
      ...values.bindings,
      ...results.map(
        (value, i) =>
          ({
            name: `result${i}`,
            type: "f32",
            source: { kind: "value", value },
            writes: true,
          }) as const,
      ),
    ],
    declarations: `${values.functions}
var<workgroup> partial: array<f32, ${LANES}>;`,
    rows: out.rows,
    grid: (rows) => [heads.reduce((a, b) => a + b), rows, 1],
    body: `
  let row = group.y;
  let isFirst = group.x < ${heads[0]}u;
  let first = (group.x - select(${heads[0]}u, 0u, isFirst)) * ${size}u;
  ${held.map((i) => `var v${i} = 0.0; var rest${i} = 0.0;`).join(" ")}
  ${each((n) =>
    held
      .map((i) =>
        inHead(i, `v${i} = inputAt${n}(row, ${at(i)}); rest${i} = restAt${n}(row, ${at(i)});`),
      )
      .join(" "),
  )}
  var sum = 0.0;
  ${held.map((i) => `sum = fma(v${i}, v${i}, sum);`).join(" ")}
  partial[lane] = sum;${sumText(LANES)}
  let mean = partial[0] / ${float(size)};
  ${each(
    (n) => `
    let factor = 1.0 / sqrt(mean + ${float(norms[n]!.node.eps)});
    ${held
      .map((i) =>
        inHead(
          i,
          `result${n}[row * ${results[n]!.cols}u + ${at(i)}] = stored${n}(v${i} * factor * ${scales[n]}[lane + ${i * LANES}u], rest${i}, ${at(i)});`,
        ),
      )
      .join(" ")}`,
  )}`,
  });
}
