// Tensors that are not on their layer's device: llama.cpp's --override-tensor, --cpu-moe and --n-cpu-moe. A pattern is a
// regular expression that is searched for in a tensor's name; of several that match, the first counts.
//
// The nodes that read such a tensor are computed on its device (graph/split.ts).

import { UsageError } from "../../base/errors.ts";
import { show } from "../../base/show.ts";
import { weightBytes } from "../../graph/cost.ts";
import type { Graph, Weight } from "../../graph/graph.ts";
import type { Side } from "../../graph/split.ts";

/** The processor is the front of a split graph, the GPU its back. */
const places: Readonly<Record<string, Side>> = { cpu: "front", gpu: "back" };

export interface TensorOverride {
  readonly pattern: RegExp;
  readonly side: Side;
  /** As it was given, for people: "ffn_up=cpu". */
  readonly text: string;
  /** A model without such tensors is refused. Default: false. */
  readonly mustMatch?: boolean;
}

export interface OverrideOptions {
  /** "PATTERN=cpu" or "PATTERN=gpu". */
  readonly overrideTensors?: readonly string[] | undefined;
  /** Layers, from the first on, whose experts are on the processor. */
  readonly cpuExperts?: number | "all" | undefined;
}

/** In the order in which they count: those of overrideTensors first. */
export function readOverrides({
  overrideTensors = [],
  cpuExperts = 0,
}: OverrideOptions): TensorOverride[] {
  const given = overrideTensors.map(readOverride);
  return cpuExperts === 0 ? given : [...given, expertsOverride(cpuExperts)];
}

function readOverride(text: string): TensorOverride {
  const at = text.lastIndexOf("=");
  const place = text.slice(at + 1).toLowerCase();
  const side = Object.hasOwn(places, place) ? places[place] : undefined;
  if (at < 1 || !side) {
    const names = Object.keys(places).join(" or =");
    throw new UsageError(
      `overrideTensors: got ${show(text)}, expected a pattern of tensor names and =${names}, as in "ffn_.*_exps=cpu"`,
    );
  }
  const source = text.slice(0, at);
  try {
    return { pattern: new RegExp(source), side, text: `${source}=${place}`, mustMatch: true };
  } catch (cause) {
    throw new UsageError(
      `overrideTensors: ${show(source)} is not a regular expression: ${(cause as Error).message}`,
      { cause },
    );
  }
}

/** Matrices of experts: llama.cpp's LLM_FFN_EXPS_REGEX. */
const EXPERTS = "ffn_(up|down|gate|gate_up)_(ch|)exps";

function expertsOverride(layers: number | "all"): TensorOverride {
  const which =
    layers === "all" ? "\\d+" : `(${Array.from({ length: layers }, (_, i) => i).join("|")})`;
  const text = layers === "all" ? "experts=cpu" : `experts of ${layers} layers=cpu`;
  return { pattern: new RegExp(`blk\\.${which}\\.${EXPERTS}`), side: "front", text };
}

/** The side of a weight; undefined: that of its layer. */
export function overrideOf(
  overrides: readonly TensorOverride[],
): (weight: Weight) => Side | undefined {
  return (weight) => {
    const name = tensorOf(weight);
    return overrides.find(({ pattern }) => pattern.test(name))?.side;
  };
}

/** Refuses patterns that no tensor of the model has. */
export function checkOverrides(overrides: readonly TensorOverride[], { weights }: Graph): void {
  for (const { pattern, text, mustMatch } of overrides) {
    if (!mustMatch || weights.some((weight) => pattern.test(tensorOf(weight)))) continue;
    const names = weights.slice(0, 4).map(tensorOf).join(", ");
    throw new UsageError(
      `overrideTensors: no tensor of this model matches ${show(text)}; its tensors are named ${names}, ... Correct the pattern, or leave it out`,
    );
  }
}

/** For people: the tensors that each pattern has moved. */
export function overridesText(overrides: readonly TensorOverride[], { weights }: Graph): string[] {
  return overrides.map((override) => {
    const own = weights.filter((weight) => {
      return overrides.find(({ pattern }) => pattern.test(tensorOf(weight))) === override;
    });
    const bytes = own.reduce((sum, weight) => sum + weightBytes(weight), 0);
    return `${override.text}: ${own.length} tensors, ${(bytes / 2 ** 20).toFixed(1)} MiB`;
  });
}

/** The name of the tensor in the file. */
function tensorOf({ name, source }: Weight): string {
  return source && "tensor" in source ? source.tensor : name;
}
