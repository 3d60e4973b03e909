// The identity for which times are valid: this processor and these kernels. Another processor, another engine, or
// changed kernel code makes them invalid; the text of some kernels stands for the code of all.

import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { fnv } from "../base/fnv.ts";
import { print } from "../kernels/ir/print.ts";
import { scheduled } from "../kernels/lower/schedule.ts";
import { blockMatmulKernel } from "../kernels/ops/matmul/dot4.ts";
import { floatMatmulKernel } from "../kernels/ops/matmul/floats.ts";
import { blockLayoutFor, PANEL_ROWS } from "../kernels/ops/packed/packed.ts";
import { packedTypes, packingOf } from "../kernels/ops/packed/packings.ts";
import { wasmTarget } from "../kernels/target.ts";
import type { TuneIdentity } from "./tune-file.ts";
import { featuresText, targetFor } from "./tune-target.ts";

/** By the name of the target. */
const revisions = new Map<string, string>();

/** `native` makes the kernels; undefined: they are WebAssembly. */
export function identityOf(
  machine: { cpu: string; cores: number },
  native?: NativeKernels,
): TuneIdentity {
  const target = targetFor(native);
  const revision = revisions.get(target.name) ?? kernelRevision(native);
  revisions.set(target.name, revision);
  return {
    engine: `kernels ${revision}`,
    cpu: machine.cpu,
    cores: machine.cores,
    features: featuresText(target),
  };
}

/** WebAssembly with each way of multiplying bytes (packed.ts, "products"). */
const wasmKinds = (["signed", "i7", "words"] as const).map((dot4) =>
  wasmTarget({ dot4, vectorRegisters: 16 }),
);

/**
 * A hash of the kernels: of every layout as data, and of the code for a short and a long one. For machine code, of its
 * bytes, because the lowering is ours.
 */
function kernelRevision(native: NativeKernels | undefined): string {
  const targets = native ? [native.target] : wasmKinds;
  const target = targets[0]!;
  const groups = Math.min(2, PANEL_ROWS / (target.width / 4));
  const shape = { groups, tokens: 4, replicated: false, order: "matrix" } as const;
  // Sorted: the table's order is that in which modules were loaded, which differs between threads and bundles.
  const layouts = packedTypes()
    .map((type) => packingOf(type)!.layout(target.dot4))
    .sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  const short = layouts.find(({ spanBlocks }) => spanBlocks === 1)!;
  const long = layouts.find(({ spanBlocks }) => spanBlocks > 1)!;
  const blocks = targets.flatMap((kind) =>
    [short, long].map((layout, i) =>
      blockMatmulKernel({
        ...shape,
        name: native ? `revision.${i}` : "blocks",
        layout: blockLayoutFor(layout, kind),
      }),
    ),
  );
  const { order, tokens } = shape;
  const floats = floatMatmulKernel({ name: "f32", weights: "f32", groups, tokens, order, target });
  // The effect of knobs on a kernel changes with the scheduling code.
  const schedule = { unroll: 2, order: "interleaved", pipelined: true } as const;
  const other = native ? [{ ...scheduled(floats, schedule), name: "f32.scheduled" }] : [];
  const kernels = [...blocks, floats, ...other];
  const code = native ? kernels.map((kernel) => codeText(native.lower(kernel))) : [];
  return fnv([JSON.stringify(layouts), ...kernels.map(print), ...code].join("\n"));
}

function codeText(code: ReturnType<NativeKernels["lower"]>): string {
  return typeof code === "string" ? code : code.bytes.join(" ");
}
