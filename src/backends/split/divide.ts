// Divides a plan between a host and a device: the output and the last layers are on the device, the rest on the host; tensors
// that are placed otherwise (overrides.ts) take the nodes that read them along. Layers are counted as in llama.cpp (-ngl): the
// output is the first, then the last layer, then the one before it; one more than the model has layers is everything.
//
// Nothing is measured here: split.ts asks the backend that will run a part.

import { memoryText } from "../../base/byte-sizes.ts";
import { ModelError, UsageError } from "../../base/errors.ts";
import { weightBytes } from "../../graph/cost.ts";
import { type Graph, layerCount, type Weight } from "../../graph/graph.ts";
import { divideNeurons, type HotNeurons } from "../../graph/hot-neurons.ts";
import { makePlan, type Plan } from "../../graph/plan.ts";
import { reluNetworks } from "../../graph/relu-networks.ts";
import { canSplit, type Places, splitGraph, type Turn } from "../../graph/split.ts";
import { overrideOf, type TensorOverride } from "./overrides.ts";

export interface Division {
  /** Layers on the device, the output counted as one. */
  readonly deviceLayers: number;
  /** undefined: the other part has everything. */
  readonly host: Plan | undefined;
  readonly device: Plan | undefined;
  /** The order in which both parts compute, if both have one: the host is the front. */
  readonly turns: readonly Turn[];
  /** Networks whose hot neurons are on the device, and the cold ones on the host. */
  readonly neurons?: HotNeurons;
}

/** Weights that are not on their layer's device. */
export interface Elsewhere {
  readonly overrides?: readonly TensorOverride[] | undefined;
  /** The share of the neurons of ReLU networks that is on the device; the others are on the host. Default: 0, each with its layer. */
  readonly hotNeurons?: number | undefined;
  /** Whether the device cannot compute a node. */
  readonly refuses?: Places["refuses"];
}

/** The number of layers that is everything. */
export function mostLayers({ graph }: Plan): number {
  return layerCount(graph) + 1;
}

export function dividePlan(
  plan: Plan,
  deviceLayers: number,
  { overrides = [], hotNeurons = 0, refuses }: Elsewhere = {},
): Division {
  const most = mostLayers(plan);
  const layers = Math.min(deviceLayers, most);
  const onHost = { deviceLayers: layers, host: plan, device: undefined, turns: [] };
  const onDevice = { deviceLayers: layers, host: undefined, device: plan, turns: [] };
  const isByLayer = overrides.length === 0 && hotNeurons === 0;
  if (layers === 0 && isByLayer) return onHost;
  if (layers === most && isByLayer) return onDevice;
  if (!canDivide(plan, layers)) throw new ModelError(refusal(plan, layers));
  const firstLayer = layers === 0 ? most : layers === most ? -1 : most - layers;
  const neurons = hotNeurons > 0 ? divideNeurons(plan.graph, hotNeurons) : undefined;
  const named = overrideOf(overrides);
  const weight = (one: Weight) => {
    const isHot = neurons?.isHot.get(one.name);
    return isHot === undefined ? named(one) : isHot ? "back" : "front";
  };
  // If no tensor is named, supports() has refused such nodes.
  const places = {
    weight,
    ...(overrides.length > 0 && refuses && { refuses }),
    ...(neurons && { cuts: neurons.cuts, beside: neurons.beside }),
  };
  const { front, back, turns } = splitGraph(neurons?.graph ?? plan.graph, firstLayer, places);
  if (back.nodes.length === 0) return onHost;
  if (front.nodes.length === 0) return onDevice;
  return {
    deviceLayers: layers,
    host: makePlan(front, plan.limits),
    device: makePlan(back, plan.limits),
    turns,
    ...(neurons && { neurons }),
  };
}

/** Whether `deviceLayers` layers can be on the device: layers that share a KV cache stay together. */
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

/** For people: the number of values that pass from one backend to the other, and their bytes. */
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

/** Refuses models without networks that can be divided. */
export function checkNeurons(share: number, graph: Graph): void {
  if (divideNeurons(graph, share).neurons > 0) return;
  const why =
    reluNetworks(graph.nodes).length === 0
      ? "no network of this model has a ReLU, so that all neurons are needed for every token"
      : "the networks of this model have fewer than 512 neurons, or adapters";
  throw new UsageError(`hotNeurons: got ${share}, but ${why}. Leave it out`);
}

/** For people: the networks that are divided. */
export function hotText({ neurons, device }: Division, name: string): string[] {
  if (!neurons || !device) return [];
  const { hotCount, neurons: all, isHot } = neurons;
  const own = device.graph.weights.filter(({ name }) => isHot.get(name));
  const bytes = own.reduce((sum, weight) => sum + weightBytes(weight), 0);
  return [
    `hot neurons: the first ${hotCount} of ${all} are on ${name} (${memoryText(bytes)}), the others on the processor`,
  ];
}

/** To whom asked for more than fit. `which`: names the layers. */
export function layersAdvice(fitting: number, all: number, which?: string): string {
  if (fitting === 0) return "Not even the output would fit: use `gpuLayers: 0`, the processor";
  const named = which === undefined ? "" : ` (${which})`;
  return `${fitting} of its ${all} layers would fit${named}: use \`gpuLayers: ${fitting}\` or \`gpuLayers: "auto"\``;
}
