// Divides a plan between a host and a device: the output and the last layers are on the device, the rest on the host; tensors
// that are placed otherwise (overrides.ts) take the nodes that read them along. Layers are counted as in llama.cpp (-ngl): the
// output is the first, then the last layer, then the one before it; one more than the model has layers is everything.
//
// Nothing is measured here: split.ts asks the backend that will run a part.

import { ModelError } from "../../base/errors.ts";
import { layerCount } from "../../graph/graph.ts";
import { makePlan, type Plan } from "../../graph/plan.ts";
import { canSplit, type Places, splitGraph, type Turn } from "../../graph/split.ts";
import { overrideOf, type TensorOverride } from "./overrides.ts";

export interface Division {
  /** Layers on the device, the output counted as one. */
  readonly deviceLayers: number;
  /** undefined: the other part has everything. */
  readonly host: Plan | undefined;
  readonly device: Plan | undefined;
  /** Who computes when, where both have a part: the host is the front. */
  readonly turns: readonly Turn[];
}

/** The number of layers that is everything. */
export function mostLayers({ graph }: Plan): number {
  return layerCount(graph) + 1;
}

export function dividePlan(
  plan: Plan,
  deviceLayers: number,
  overrides: readonly TensorOverride[] = [],
  refuses?: Places["refuses"],
): Division {
  const most = mostLayers(plan);
  const layers = Math.min(deviceLayers, most);
  const onHost = { deviceLayers: layers, host: plan, device: undefined, turns: [] };
  const onDevice = { deviceLayers: layers, host: undefined, device: plan, turns: [] };
  if (layers === 0 && overrides.length === 0) return onHost;
  if (layers === most && overrides.length === 0) return onDevice;
  if (!canDivide(plan, layers)) throw new ModelError(refusal(plan, layers));
  const firstLayer = layers === 0 ? most : layers === most ? -1 : most - layers;
  const weight = overrideOf(overrides);
  // Where no tensor is named, supports() has refused such nodes.
  const places = { weight, ...(overrides.length > 0 && refuses && { refuses }) };
  const { front, back, turns } = splitGraph(plan.graph, firstLayer, places);
  if (back.nodes.length === 0) return onHost;
  if (front.nodes.length === 0) return onDevice;
  return {
    deviceLayers: layers,
    host: makePlan(front, plan.limits),
    device: makePlan(back, plan.limits),
    turns,
  };
}

/** Whether so many layers can be on the device: layers that share a KV cache stay together. */
export function canDivide(plan: Plan, deviceLayers: number): boolean {
  const isWhole = deviceLayers === 0 || deviceLayers >= mostLayers(plan);
  return isWhole || canSplit(plan.graph, mostLayers(plan) - deviceLayers);
}

function refusal(plan: Plan, deviceLayers: number): string {
  const all = Array.from({ length: mostLayers(plan) + 1 }, (_, layers) => layers);
  const ranges: [number, number][] = [];
  for (const layers of all.filter((count) => canDivide(plan, count))) {
    const last = ranges.at(-1);
    if (last?.[1] === layers - 1) last[1] = layers;
    else ranges.push([layers, layers]);
  }
  const texts = ranges.map(([from, to]) => (from === to ? from : `${from} to ${to}`));
  return `gpuLayers: got ${deviceLayers}, which parts layers of this model that share a KV cache. Use one of ${texts.join(", ")}`;
}

/** The most layers for which `fits` is true, by bisection: if some do not fit, more do not either. */
export async function mostThatFit(
  limit: number,
  fits: (layers: number) => boolean | Promise<boolean>,
): Promise<number> {
  let [yes, no] = [0, limit + 1];
  while (no - yes > 1) {
    const middle = (yes + no) >> 1;
    if (await fits(middle)) yes = middle;
    else no = middle;
  }
  return yes;
}

/** For people: how often values pass from one backend to the other, and how many bytes. */
export function crossingsText({ host, device, turns }: Division): string {
  const given = [host, device].flatMap((part) => part?.graph.sections ?? []);
  const bytes = (rows: "tokens" | "others") =>
    given
      .flatMap(({ gives }) => gives)
      .filter((value) => (value.rows === "tokens") === (rows === "tokens"))
      .reduce((sum, { cols }) => sum + cols * 4, 0);
  const last = bytes("others");
  const outputs = last > 0 ? `, and ${last} of each output` : "";
  return `values pass between the two ${turns.length - 1} times a batch: ${bytes("tokens")} bytes of each token${outputs}`;
}

/** For people: "the output and layers 4 to 7 of 8". */
export function layersText(deviceLayers: number, { graph }: Plan): string {
  const layers = layerCount(graph);
  if (deviceLayers > layers) return `all ${layers} layers and the output`;
  if (deviceLayers <= 1) return deviceLayers === 0 ? "no layer" : "the output and no layer";
  const first = layers + 1 - deviceLayers;
  const which = first === layers - 1 ? `layer ${first}` : `layers ${first} to ${layers - 1}`;
  return `the output and ${which} of ${layers}`;
}
