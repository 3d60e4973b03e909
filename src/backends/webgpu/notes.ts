// Lines of --explain about the WebGPU backend: batches submitted ahead, the experts that have slots, and the kernels of each part
// of the graph.

import type { Layout } from "./buffers.ts";
import type { GpuFacts } from "./device.ts";
import type { ExactArithmetic } from "./exact/arithmetic.ts";
import type { HostExperts } from "./experts/host-experts.ts";
import type { Lookahead } from "./lookahead.ts";
import type { Program } from "./program.ts";
import type { LayerDispatch } from "./tuning.ts";
import type { WarmedUp } from "./warm-up.ts";

/** Why kernels do not use subgroups that the device says it has. */
export function subgroupNotes({ subgroupShuffles }: GpuFacts): string[] {
  return typeof subgroupShuffles === "string"
    ? [`subgroups are not used: ${subgroupShuffles}`]
    : [];
}

/** The way that the CPU's bits are computed. */
export function exactNote(arithmetic: ExactArithmetic | undefined): string {
  const bits = "exact: the bits of the CPU";
  return arithmetic?.deviceFuses === false
    ? `${bits}; this GPU's fma() rounds twice, so multiply-adds are made of error-free transformations`
    : bits;
}

/** The number of batches that may be submitted ahead. */
export function lookaheadNotes({ most }: Lookahead, { looksAhead }: Program): string[] {
  if (most === 0) return ["tokens are computed one after the other: none submitted ahead"];
  if (!looksAhead) return ["no tokens submitted ahead: the host has a part in each"];
  return [`up to ${most} batches are submitted before the host has drawn their tokens`];
}

/** Whether the layers of a token are one dispatch each, and why. `isMerged`: they can be. */
export function layerNotes({ groups, lanes, why }: LayerDispatch, isMerged: boolean): string[] {
  if (groups > 0 && !isMerged) return [];
  const how =
    groups === 0
      ? "has a dispatch for each op"
      : `is one dispatch of ${groups} workgroups${lanes ? ` of ${lanes} lanes` : ""}`;
  return [`a layer of a token ${how}${why ? `: ${why}` : ""}`];
}

/** The batches that were computed when the model was loaded. */
export function warmUpNote({ sizes, ms }: WarmedUp): string {
  const known = [...new Set(sizes)].sort((a, b) => a - b);
  return `warm-up: batches of ${known.join(", ")} tokens in ${ms.toFixed(0)} ms`;
}

/** The experts that have slots, and their cache hits. */
export function expertNotes(layout: Layout, experts: HostExperts): string[] {
  const [first] = layout.experts;
  if (!first) return [];
  const mib = (layout.hostBytes / 2 ** 20).toFixed(1);
  return [
    `experts: ${first.slots} of ${first.experts} in GPU memory in each of ${layout.experts.length} layers, by recent use; all of them (${mib} MiB) in the host's`,
    ...experts.notes(),
  ];
}

export function programNotes({ weights }: Layout, program: Program): string[] {
  const split = [...weights.parts].filter(([, parts]) => parts.length > 1);
  return [
    `${weights.buffers.length} buffers of weights, ${program.pipelines} shaders`,
    ...split.map(([name, parts]) => `${name}: in ${parts.length} parts, larger than a binding`),
    ...program.parts.map(({ nodes, dispatches }) => {
      const names = nodes.map(({ name }) => name).join(" + ");
      return `${names}: ${dispatches.map(({ kernel }) => kernel.name).join(", ")}`;
    }),
  ];
}

export function streamNote({ weights: { streamed, buffers } }: Layout, bytes: number): string {
  const layers = streamed?.units.length ?? 0;
  const mib = (size: number): string => `${(size / 2 ** 20).toFixed(0)} MiB`;
  const held = buffers.reduce((sum, size) => sum + size, 0);
  return `the matrices of ${layers} layers come from the host for each batch: ${mib(bytes)}, two layers at a time (${mib(held)} of GPU memory)`;
}
