// From the header of a model file to a graph: finds the architecture, reads its configuration, checks that every weight is
// there with the right shape, and builds the graph. One error lists everything that is wrong. No weight is read here.

import { ModelError } from "../base/errors.ts";
import { GraphBuilder } from "../graph/builder.ts";
import { type Graph, isBidirectional, type Weight } from "../graph/graph.ts";
import { tensorOf } from "../graph/weight-source.ts";
import type { Arch, ModelConfig, ModelHeader, WeightLookup, WeightSpec } from "./arch.ts";
import { isPredictorTensor } from "./predictor-names.ts";
import { archNamed } from "./table.ts";

export interface BuiltModel {
  config: ModelConfig;
  graph: Graph;
  /** Warnings about parts of the file that are not computed, for users. */
  warnings: readonly string[];
}

/** A model trained for 128k tokens gets no cache for 128k unless it is requested. */
export const DEFAULT_CONTEXT = 4096;

/**
 * `context`: the tokens that will be asked for. Default: DEFAULT_CONTEXT. `usesNext`: the layer that predicts further tokens is loaded
 * as well (buildNext).
 */
export function buildModel(
  header: ModelHeader,
  context: number = DEFAULT_CONTEXT,
  usesNext: boolean = false,
): BuiltModel {
  if (header.metadata.string("general.type") === "adapter") {
    throw new ModelError(
      'model: this file is an adapter (general.type "adapter"), not a model. Open its model, with this file in `adapters`',
    );
  }
  if (header.metadata.string("general.type") === "predictor") {
    throw new ModelError(
      'model: this file has predictors of neurons (general.type "predictor"), and is not a model. Open its model, with this file as its predictors',
    );
  }
  const arch = archNamed(header.metadata.string("general.architecture"));
  const found = arch.config(header);
  const config = { ...found, context: Math.min(context, found.trainedContext) };
  const specs = arch.weights(config);
  const isNext = (name: string) => isOfNextLayer(name, config);
  const own = [...header.tensors].filter(([name]) => !isPredictorTensor(name));
  const tensors = new Map(own.filter(([name]) => !isNext(name)));
  checkWeights(specs, tensors);
  const graph = buildGraph(arch, config, lookup(specs, tensors));
  checkAllRead(specs, tensors, graph);
  const key = `${config.architecture}.attention.causal`;
  if (header.metadata.boolean(key) === false && !isBidirectional(graph)) {
    throw new ModelError(
      `model: ${key}: got false, expected true: this architecture cannot attend in both directions`,
    );
  }
  const left = own.length - tensors.size;
  const warnings = left === 0 || usesNext ? [] : [leftText(left, config, arch.next !== undefined)];
  return { config, graph, warnings };
}

function leftText(left: number, { nextLayers }: ModelConfig, isKnown: boolean): string {
  const layers =
    nextLayers === 1 ? "the layer that predicts" : `the ${nextLayers} layers that predict`;
  const what = `${left} tensors of ${layers} further tokens (nextn) are not read`;
  return isKnown && nextLayers === 1
    ? `${what}: mtp (--mtp) lets it draft`
    : `${what}: tokens are generated one by one`;
}

/** A layer that predicts a further token, as a graph of its own (parts/next.ts). */
export interface BuiltNext {
  config: ModelConfig;
  graph: Graph;
}

/** undefined: the file has none, or several, or the architecture's are not known. */
export function buildNext(
  header: ModelHeader,
  context: number = DEFAULT_CONTEXT,
): BuiltNext | undefined {
  const arch = archNamed(header.metadata.string("general.architecture"));
  const { next } = arch;
  const found = arch.config(header);
  const config = { ...found, context: Math.min(context, found.trainedContext) };
  const projection = `blk.${config.layers}.nextn.eh_proj.weight`;
  if (next === undefined || config.nextLayers !== 1 || !header.tensors.has(projection)) {
    return undefined;
  }
  const specs = next.weights(config);
  const shared = new Set(specs.map(({ name }) => name));
  const isRead = (name: string) => shared.has(name) || isOfNextLayer(name, config);
  const tensors = new Map([...header.tensors].filter(([name]) => isRead(name)));
  checkWeights(specs, tensors);
  const g = new GraphBuilder();
  const graph = g.finish(next.forward(g, config, lookup(specs, tensors)));
  const states = graph.states.map((state) => ({ ...state, layer: 0 }));
  return { config, graph: { ...graph, states } };
}

/** Whether a tensor belongs to a layer that predicts further tokens. */
function isOfNextLayer(name: string, { layers, nextLayers = 0 }: ModelConfig): boolean {
  const layer = Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1);
  return layer >= layers && layer < layers + nextLayers;
}

/** A tensor that the forward pass does not read would change the result, were it read: a file that has one is refused. */
function checkAllRead(
  specs: readonly WeightSpec[],
  tensors: ReadonlyMap<string, Weight>,
  { weights }: Graph,
): void {
  const read = new Set(weights.map(tensorOf));
  const mayBeLeft = new Set(specs.filter(({ unread }) => unread).map(({ name }) => name));
  const left = [...tensors.keys()].filter((name) => !read.has(name) && !mayBeLeft.has(name));
  if (left.length === 0) return;
  throw new ModelError(
    `model: ${left.length} tensor${left.length > 1 ? "s" : ""} of the file would not be used, which would give other results than the model's; expected none beside the architecture's. The file is damaged, or its converter is unknown here: download or convert it again. In detail:\n  ${problemList(left)}`,
  );
}

export function buildGraph(arch: Arch, config: ModelConfig, w: WeightLookup): Graph {
  const g = new GraphBuilder();
  return g.finish(arch.forward(g, config, w));
}

/** Throws one ModelError that lists all missing, misshapen, mistyped and unexpected weights. */
export function checkWeights(
  specs: readonly WeightSpec[],
  tensors: ReadonlyMap<string, Weight>,
): void {
  const problems: string[] = [];
  const known = new Set<string>();
  for (const spec of specs) {
    known.add(spec.name);
    const tensor = tensors.get(spec.name);
    if (!tensor) {
      const isThere = spec.optional || (spec.unless !== undefined && tensors.has(spec.unless));
      if (!isThere) problems.push(`missing: ${spec.name} [${spec.shape.join(", ")}]`);
    } else if (!sameShape(tensor.shape, spec.shape)) {
      problems.push(
        `shape: ${spec.name} is [${tensor.shape.join(", ")}], expected [${spec.shape.join(", ")}]`,
      );
    } else if (spec.shape.length === 1 && tensor.dtype.blockElems > 1) {
      // Norms and biases are read value by value; no converter quantizes them.
      problems.push(`type: ${spec.name} is ${tensor.dtype.name}, expected floats: it is a vector`);
    }
  }
  for (const name of tensors.keys()) {
    if (!known.has(name)) problems.push(`unexpected: ${name}`);
  }
  if (problems.length === 0) return;
  throw new ModelError(
    `model: ${problems.length} weight${problems.length > 1 ? "s do" : " does"} not fit the architecture. The file is damaged, or its converter is unknown here: download or convert it again. In detail:\n  ${problemList(problems)}`,
  );
}

/** All problems; of very many, the first, the last, and the number in between. */
export function problemList(problems: readonly string[]): string {
  const most = 40;
  if (problems.length <= most) return problems.join("\n  ");
  const left = problems.length - most;
  return [...problems.slice(0, most - 5), `... and ${left} more ...`, ...problems.slice(-5)].join(
    "\n  ",
  );
}

function lookup(specs: readonly WeightSpec[], tensors: ReadonlyMap<string, Weight>): WeightLookup {
  const shapes = new Map(specs.map(({ name, shape }) => [name, shape]));
  const found = new Map<string, Weight>();
  // One object for each weight, with the shape that the architecture gives it.
  const maybe = (name: string) => {
    const shape = shapes.get(name);
    const tensor = tensors.get(name);
    if (!shape || !tensor) return undefined;
    const isSame = tensor.shape.length === shape.length;
    const weight = found.get(name) ?? (isSame ? tensor : { ...tensor, shape });
    found.set(name, weight);
    return weight;
  };
  const get = (name: string) => {
    const weight = maybe(name);
    if (!weight)
      throw new ModelError(`model: forward() reads ${name}, which weights() does not name`);
    return weight;
  };
  return { get, maybe };
}

/** Dimensions of 1 do not count: some files leave them out. */
function sameShape(a: readonly number[], b: readonly number[]): boolean {
  const [one, other] = [withoutOnes(a), withoutOnes(b)];
  return one.length === other.length && one.every((dim, i) => dim === other[i]);
}

function withoutOnes(shape: readonly number[]): readonly number[] {
  return shape.filter((dim) => dim !== 1);
}
