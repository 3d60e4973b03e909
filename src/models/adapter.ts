// Reads a LoRA adapter: pairs of factors (NAME.lora_a and NAME.lora_b) for matrices of a model, as llama.cpp's convert_lora_to_gguf.py
// writes them. Everything is checked against the model before a factor is read; one error lists all that does not fit.

import { ModelError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { type AdapterPair, type AdapterPairs, adaptableTensors } from "../graph/adapt.ts";
import type { Graph, Weight } from "../graph/graph.ts";
import type { ModelHeader } from "./arch.ts";
import { problemList } from "./build.ts";

/** An adapter file, as models/ sees it. */
export interface AdapterHeader extends ModelHeader {
  /** For messages. */
  readonly name: string;
}

/** The model that it is for. */
export interface AdaptedModel {
  readonly header: ModelHeader;
  readonly graph: Graph;
}

export interface ReadAdapter {
  readonly pairs: AdapterPairs;
  /** The factor of its file: products are multiplied by alpha / rank; 0: by 1. */
  readonly alpha: number;
  /** The largest rank of its pairs. */
  readonly rank: number;
  /** The adapter applies from the last occurrence of these tokens on (activated LoRA); none: it always applies. */
  readonly invocation: readonly number[];
  readonly warnings: readonly string[];
}

export interface AdapterFacts {
  /** "lora" */
  readonly kind: string;
  /** Matrices that it has factors for. */
  readonly matrices: number;
  readonly rank: number;
  readonly alpha: number;
  readonly invocationTokens?: readonly number[];
}

const INVOCATION = "adapter.alora.invocation_tokens";

/** The facts that an adapter's file states, without its model; undefined: the file is no adapter. */
export function describeAdapter({ metadata, tensors }: ModelHeader): AdapterFacts | undefined {
  if (metadata.string("general.type") !== "adapter") return undefined;
  const firsts = [...tensors.values()].filter(({ name }) => name.endsWith(".lora_a"));
  const ranks = firsts.map(({ name, shape }) =>
    shape.at(name === "token_embd.weight.lora_a" ? -1 : -2),
  );
  const invocationTokens = (metadata.has(INVOCATION) && metadata.numbers(INVOCATION)) || [];
  return {
    kind: metadata.string("adapter.type") ?? "",
    matrices: firsts.length,
    rank: Math.max(0, ...ranks.map((rank) => rank ?? 0)),
    alpha: metadata.number("adapter.lora.alpha") ?? 0,
    ...(invocationTokens.length > 0 && { invocationTokens }),
  };
}

/** `weightName`: the name of a factor in the graph, by its name in the file. */
export function readAdapter(
  file: AdapterHeader,
  { header, graph }: AdaptedModel,
  weightName: (tensor: string) => string,
): ReadAdapter {
  const { alpha, invocation } = checkedMetadata(file, header);
  const problems: string[] = [];
  const { names, norms } = pairNames(file, problems);
  const pairs = new Map<string, AdapterPair>();
  let largest = 0;
  for (const name of names) {
    const [a, b] = [file.tensors.get(`${name}.lora_a`), file.tensors.get(`${name}.lora_b`)];
    if (!a || !b) {
      problems.push(
        `missing: ${name}.lora_${a ? "b" : "a"}, which belongs to ${name}.lora_${a ? "a" : "b"}`,
      );
      continue;
    }
    const found = checkedPair(name, a, b, header, graph);
    if (typeof found === "string") {
      problems.push(found);
      continue;
    }
    const { rank, isOfEmbedding } = found;
    largest = Math.max(largest, rank);
    pairs.set(name, {
      a: renamed(a, weightName(a.name)),
      b: renamed(b, weightName(b.name)),
      factor: alpha === 0 ? 1 : alpha / rank,
      isOfEmbedding,
    });
  }
  if (names.size === 0) problems.push("it has no factors: no tensor whose name ends in .lora_a");
  if (problems.length > 0) {
    throw new ModelError(
      `adapter ${file.name}: ${problems.length} of its tensors ${problems.length > 1 ? "do" : "does"} not fit the model. It is for another model, or its file is damaged: convert or download it again, for this model. In detail:\n  ${problemList(problems)}`,
    );
  }
  const warnings =
    norms.length === 0
      ? []
      : [
          `adapter ${file.name}: ${norms.length} norms of it (${norms[0]}) are not used, as in llama.cpp: only its matrices are`,
        ];
  return { pairs, alpha, rank: largest, invocation, warnings };
}

function checkedMetadata(
  { name, metadata }: AdapterHeader,
  { metadata: model, tensors }: ModelHeader,
): Pick<ReadAdapter, "alpha" | "invocation"> {
  const fail = (key: string, got: unknown, expected: string): never => {
    throw new ModelError(`adapter ${name}: ${key}: got ${show(got)}, expected ${expected}`);
  };
  const type = metadata.string("general.type");
  if (type !== "adapter") {
    fail(
      "general.type",
      type,
      '"adapter". This file is no adapter: give a LoRA adapter in GGUF, as convert_lora_to_gguf.py of llama.cpp writes it',
    );
  }
  const kind = metadata.string("adapter.type");
  if (kind !== "lora") fail("adapter.type", kind, '"lora", the only kind of adapter that is known');
  const [own, base] = [metadata, model].map((each) => each.string("general.architecture"));
  if (own !== base)
    fail(
      "general.architecture",
      own,
      `"${base}", as the model has it: the adapter is for another model`,
    );
  const invocation = metadata.has(INVOCATION) ? metadata.numbers(INVOCATION) : [];
  if (!invocation?.every((id) => Number.isInteger(id) && id >= 0)) {
    fail(INVOCATION, metadata.preview(INVOCATION, 4)?.value, "a list of token ids");
  }
  // Such an adapter would silently never apply.
  const vocab = tensors.get("token_embd.weight")?.shape[0] ?? Infinity;
  const unknown = invocation!.find((id) => id >= vocab);
  if (unknown !== undefined) {
    fail(
      INVOCATION,
      unknown,
      `token ids of the model (0 to ${vocab - 1}): the adapter is for another`,
    );
  }
  const alpha = metadata.number("adapter.lora.alpha") ?? 0;
  if (!Number.isFinite(Math.fround(alpha))) fail("adapter.lora.alpha", alpha, "a finite number");
  return { alpha, invocation: invocation! };
}

/** The tensors of the model that it has factors for, and the norms in it. */
function pairNames(
  { tensors }: AdapterHeader,
  problems: string[],
): { names: Set<string>; norms: string[] } {
  const names = new Set<string>();
  const norms: string[] = [];
  for (const tensor of tensors.keys()) {
    const pair = /^(.+)\.lora_[ab]$/.exec(tensor);
    if (pair) names.add(pair[1]!);
    else if (tensor.endsWith("_norm.weight")) norms.push(tensor);
    else problems.push(`unexpected: ${tensor}; names end in .lora_a or .lora_b`);
  }
  return { names, norms };
}

/** A string: the mismatch. */
function checkedPair(
  name: string,
  a: Weight,
  b: Weight,
  { tensors }: ModelHeader,
  graph: Graph,
): { rank: number; isOfEmbedding: boolean } | string {
  const tensor = tensors.get(name);
  if (!tensor) return `unknown: ${name} is not in the model`;
  const { matmuls, embeddings } = adaptableTensors(graph);
  const isOfEmbedding = name === "token_embd.weight" && embeddings.has(name);
  if (!isOfEmbedding && !matmuls.has(name)) {
    return `use: ${name} is not multiplied with activations; adapters of other weights are not supported`;
  }
  // Before the last two dimensions: the number of experts, if any.
  const experts = tensor.shape.slice(0, -2);
  const [outputs, inputs] = tensor.shape.slice(-2) as [number, number];
  // The converter writes the factors of embeddings the other way round.
  const rank = a.shape.at(isOfEmbedding ? -1 : -2);
  const expected = isOfEmbedding
    ? [
        [outputs, rank],
        [inputs, rank],
      ]
    : [
        [...experts, rank, inputs],
        [...experts, outputs, rank],
      ];
  const fits = [a, b].every(
    ({ shape }, i) =>
      shape.length === tensor.shape.length && shape.every((size, at) => size === expected[i]![at]),
  );
  if (!fits || rank === undefined) {
    const shapes = expected.map((shape) => `[${shape.map((size) => size ?? "rank").join(", ")}]`);
    return `shape: ${name} is [${tensor.shape.join(", ")}], and its factors are [${a.shape.join(", ")}] and [${b.shape.join(", ")}], expected ${shapes.join(" and ")}`;
  }
  if (rank > Math.max(outputs, inputs)) {
    return `rank: ${name} is [${tensor.shape.join(", ")}], and its factors have rank ${rank}, expected at most ${Math.max(outputs, inputs)}`;
  }
  return { rank, isOfEmbedding };
}

/** The factor under its name in the graph. */
function renamed({ shape, dtype }: Weight, name: string): Weight {
  return { name, shape, dtype };
}
