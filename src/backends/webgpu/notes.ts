// --explain about the WebGPU backend: what is in flight, which experts have slots, and the kernels of each part of the graph.

import type { Layout } from "./buffers.ts";
import type { GpuFacts } from "./device.ts";
import type { HostExperts } from "./experts/host-experts.ts";
import type { Flight } from "./flight.ts";
import type { Program } from "./program.ts";
import type { LayerDispatch } from "./tuning.ts";
import type { WarmedUp } from "./warm-up.ts";

/** Why kernels do not use subgroups that the device says it has. */
export function subgroupNotes({ subgroupShuffles }: GpuFacts): string[] {
  return typeof subgroupShuffles === "string"
    ? [`subgroups are not used: ${subgroupShuffles}`]
    : [];
}

/** How many batches may be submitted ahead. */
export function flightNotes({ most }: Flight, { flies }: Program): string[] {
  if (most === 0) return ["tokens are computed one after the other: none in flight"];
  if (!flies) return ["no tokens in flight: the host has a part in each"];
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

/** What was computed when the model was loaded. */
export function warmUpNote({ sizes, ms }: WarmedUp): string {
  return `warm-up: batches of ${[...new Set(sizes)].join(", ")} tokens in ${ms.toFixed(0)} ms`;
}

/** Which experts have slots, and how often they had one. */
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
