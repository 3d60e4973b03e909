// The facts of a model before a device is chosen: its shape, its bytes and operations at the requested widths. From the header of a
// file, a built-in configuration, or a configuration of one's own. This code opens no file, so that a page can use it.

import { ModelError, UsageError } from "../../base/errors.ts";
import { show } from "../../base/show.ts";
import { bitsPerWeight } from "../../dtypes/dtype.ts";
import { allDTypes, dtypeByName } from "../../dtypes/table.ts";
import { sequenceState } from "../../engine/memory.ts";
import type { JsonObject } from "../../formats/json.ts";
import { weightBytes, weightElements } from "../../graph/cost.ts";
import { recurrentStates } from "../../graph/graph.ts";
import type { NamedShape } from "../../limits/configs.ts";
import { graphParameters } from "../../limits/graph-parameters.ts";
import type { LimitsModel } from "../../limits/limits-model.ts";
import { shapeState, withKvTimes } from "../../limits/memory.ts";
import {
  type BitWidths,
  type Counting,
  graphModelCost,
  shapeCost,
  withKvBits,
  withWeightBits,
} from "../../limits/model-cost.ts";
import { checkShape, type ModelShape, parameterCounts } from "../../limits/shape.ts";
import type { ModelHeader } from "../../models/arch.ts";
import { buildModel } from "../../models/build.ts";
import { configBits, headerOfConfig } from "./config-header.ts";

const defaultBits = 16;

export interface Widths {
  /** undefined: as in the file. */
  weights: Width | undefined;
  kv: Width | undefined;
  counting: Counting;
}

interface Width {
  bits: number;
  /** For display: "4 bits", "q4_0 (4.5 bits)". */
  text: string;
}

export function widthOf(what: string, asked: number | string | undefined): Width | undefined {
  if (asked === undefined) return undefined;
  const bits = typeof asked === "number" ? asked : Number(asked);
  if (bits > 0 && bits <= 64) return { bits, text: bitsText(bits) };
  const dtype = dtypeByName(String(asked).toLowerCase());
  if (dtype) {
    const typeBits = bitsPerWeight(dtype);
    return { bits: typeBits, text: `${dtype.name} (${bitsText(typeBits)})` };
  }
  throw new UsageError(
    `${what}: got ${show(asked)}, expected bits per value (from 1 to 64) or a type: ${allDTypes()
      .map(({ name }) => name)
      .join(", ")}`,
  );
}

/** Also "q8_0/q4_0": keys and values, which are as long as each other in all but a few models. */
export function kvWidthOf(asked: number | string | undefined): Width | undefined {
  const types = typeof asked === "string" ? asked.split("/") : [];
  if (types.length !== 2) return widthOf("kv", asked);
  const [k, v] = [widthOf("kv", types[0])!, widthOf("kv", types[1])!];
  const bits = (k.bits + v.bits) / 2;
  return { bits, text: `${asked} (${bitsText(bits)})` };
}

function bitsText(bits: number): string {
  return `${Number(bits.toFixed(2))} bits`;
}

export function namedModel({ name, shape }: NamedShape, widths: Widths): LimitsModel {
  const weights = widths.weights ?? { bits: defaultBits, text: bitsText(defaultBits) };
  return {
    name,
    source: "built-in configuration",
    weightsText: weights.text,
    ...shapeFacts(shape, widths, weights.bits),
  };
}

function shapeFacts(
  shape: ModelShape,
  { kv, counting }: Widths,
  weightBits: number,
): Omit<LimitsModel, "name" | "source" | "weightsText"> {
  const bits: BitWidths = { weights: weightBits, kv: kv?.bits ?? defaultBits };
  return {
    shape,
    bits,
    kvText: kv?.text ?? bitsText(defaultBits),
    cost: shapeCost(shape, bits, counting),
    state: shapeState(shape, bits.kv),
  };
}

interface OpenFile extends ModelHeader {
  readonly name: string;
  readonly format: string;
}

export function fileModel(file: OpenFile, widths: Widths): LimitsModel {
  const { shape, graph, isPlain, isRecurrent, parameters } = headerFacts(file);
  if (!isPlain && (widths.weights || widths.counting === "article")) {
    throw notPlain(file.name, isRecurrent, 'Drop "weights", and count "best"');
  }
  const storedBytes = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const elements = graph.weights.reduce((sum, weight) => sum + weightElements(weight), 0);
  const storedBits = (storedBytes * 8) / elements;
  const facts = shapeFacts(shape, widths, widths.weights?.bits ?? storedBits);
  const half = dtypeByName("f16")!;
  const state = withKvTimes(sequenceState(graph, half), facts.bits.kv / defaultBits);
  if (widths.weights || widths.counting === "article") {
    const weights = widths.weights ?? { text: bitsText(storedBits) };
    const weightsText = `${weights.text} (its file has ${bitsText(storedBits)})`;
    return { name: file.name, source: file.format, weightsText, ...facts, state };
  }
  const cost = graphModelCost(graph, half, storedBytes);
  return {
    name: file.name,
    source: file.format,
    weightsText: `as stored: ${commonType(file)}, ${bitsText(storedBits)} on average`,
    ...facts,
    cost: withKvBits(cost, defaultBits, facts.bits.kv),
    state,
    ...(!isPlain && { parameters }),
  };
}

function headerFacts(header: ModelHeader) {
  const { config, graph } = buildModel(header);
  const { vocabSize, layers, embed, feedForward, heads, kvHeads, headDim } = config;
  const shape: ModelShape = {
    ...{ vocabSize, layers, embed, feedForward, heads, kvHeads, headDim },
    qkvBias: header.tensors.has("blk.0.attn_q.bias"),
    headNorms: header.tensors.has("blk.0.attn_q_norm.weight"),
    tied: !header.tensors.has("output.weight"),
  };
  const parameters = graphParameters(graph);
  const isRecurrent = recurrentStates(graph).length > 0;
  // Experts, latent attention, layers that differ: a shape does not describe them. The graph counts biases as vectors.
  const matrices = parameterCounts({ ...shape, qkvBias: false }).total;
  const isPlain = !isRecurrent && matrices === parameters.total;
  if (isPlain) checkShape(shape);
  return { shape, graph, parameters, isRecurrent, isPlain };
}

function notPlain(name: string, isRecurrent: boolean, advice: string): ModelError {
  const what = isRecurrent ? "has recurrent layers" : "is no plain transformer";
  return new ModelError(
    `${name} ${what}: its limits are counted from its graph, with weights as they are stored. ${advice}`,
  );
}

/** A model of which only config.json is known: every matrix has the asked width, or 16 bits. */
export function configModel(config: JsonObject, name: string, widths: Widths): LimitsModel {
  const { shape, graph, isPlain, isRecurrent, parameters } = headerFacts(
    headerOfConfig(config, name),
  );
  const source = "config.json";
  if (isPlain) return { ...namedModel({ id: name, name, shape }, widths), source };
  if (widths.counting === "article") throw notPlain(name, isRecurrent, 'Count "best"');
  const { text, bits } = widths.weights ?? { text: bitsText(configBits), bits: configBits };
  const half = dtypeByName("f16")!;
  const facts = shapeFacts(shape, widths, bits);
  const storedBytes = graph.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const cost = withWeightBits(graphModelCost(graph, half, storedBytes), configBits, bits);
  return {
    ...{ name, source, weightsText: text, ...facts, parameters },
    cost: withKvBits(cost, defaultBits, facts.bits.kv),
    state: withKvTimes(sequenceState(graph, half), facts.bits.kv / defaultBits),
  };
}

/** The type with the most bytes. */
function commonType({ tensors }: ModelHeader): string {
  const bytes = new Map<string, number>();
  for (const tensor of tensors.values()) {
    const { name } = tensor.dtype;
    bytes.set(name, (bytes.get(name) ?? 0) + weightBytes(tensor));
  }
  return [...bytes].sort((a, b) => b[1] - a[1])[0]![0];
}
