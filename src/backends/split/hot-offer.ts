// Estimates hot neurons instead of a division by layers (docs/use/sparse.md): the largest share of them that the device holds in the
// memory that its layers take, with the rest of every layer there, too, and the bytes that the host would then read for a token.

import { weightBytes } from "../../graph/cost.ts";
import type { Graph, Weight } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import { type Division, dividePlan, mostLayers, mostThatFit } from "./divide.ts";

export interface HotOffer {
  /** The share of the neurons of ReLU networks. */
  readonly share: number;
  /** Bytes that the host reads for a generated token, now and with hot neurons. */
  readonly plainBytes: number;
  readonly hotBytes: number;
  /** Layers that would wait for the device. */
  readonly layers: number;
}

const STEPS = 100;

/**
 * zeros: of all neurons. leavable: bytes of the host's weights that are not read if neurons are zero. `fits`: whether the device has
 * room for a part.
 */
export async function hotOffer(
  plan: Plan,
  now: Division,
  { zeros, leavable }: { readonly zeros: number; readonly leavable: number },
  fits: (device: Plan) => boolean,
): Promise<HotOffer | undefined> {
  if (!now.host || !now.device) return undefined;
  const divided = (step: number) =>
    dividePlan(plan, mostLayers(plan), { hotNeurons: step / STEPS });
  const step = await mostThatFit(STEPS - 1, (one) => fits(divided(one).device!));
  if (step === 0) return undefined;
  const { neurons, host } = divided(step);
  if (!neurons?.neurons || !host) return undefined;
  const isNetwork = ({ name }: Weight) => neurons.pieces.has(name);
  const own = readBytes(now.host.graph);
  const networks = readBytes(now.host.graph, isNetwork);
  const cold = readBytes(host.graph);
  if (networks === 0) return undefined;
  return {
    share: step / STEPS,
    plainBytes: own - leavable * zeros,
    hotBytes: cold - leavable * (cold / networks) * zeros,
    layers: neurons.beside.size,
  };
}

/** Bytes of the matrices that are read: a table of embeddings is not read as a whole. */
function readBytes({ nodes }: Graph, isWanted: (weight: Weight) => boolean = () => true): number {
  return nodes.reduce((sum, node) => {
    const isRead = node.op === "matmul" && isWanted(node.weight);
    return isRead ? sum + weightBytes(node.weight) : sum;
  }, 0);
}
