// Puts the neurons first that a text opens most often (docs/use/sparse.md): the rows of `gate` and `up` and the columns of `down` of each
// network are permuted together, so that the model computes the same sums in another order. A row moves as it is. A column of a quantized
// `down` leaves its block of scales, so that the matrix is quantized again, with that rounding; floats move as they are.

import { ModelError } from "../../base/errors.ts";
import type { DType } from "../../dtypes/dtype.ts";
import {
  type ByteSink,
  type GgufTensor,
  type GgufValue,
  modelTensors,
  writeGguf,
} from "../../formats/gguf/writer.ts";
import type { ModelFile } from "../../formats/model-file.ts";
import type { NodeOf, Weight } from "../../graph/graph.ts";
import { nodesBehind } from "../../graph/hot-neurons.ts";
import { makersOf, openedBy, readersOf, reluNetworks } from "../../graph/relu-networks.ts";
import { type NeuronReading, pausing, readText } from "./sparsify.ts";

export interface OrderInput extends NeuronReading {
  readonly file: ModelFile;
  readonly tokens: number;
}

export interface OrderedLayer {
  readonly layer: number;
  /** The part of the neurons that are open, of all tokens. */
  readonly open: number;
  /** The part of the open ones that are among the first tenth, quarter and half of the neurons now. */
  readonly firstTenth: number;
  readonly firstQuarter: number;
  readonly firstHalf: number;
}

/** The way a tensor of the file is written. */
interface Move {
  readonly axis: "rows" | "columns";
  /** The source of the row or column at each index. */
  readonly order: Uint32Array;
}

export async function orderInto(sink: ByteSink, input: OrderInput): Promise<OrderedLayer[]> {
  const { file, places, tokens } = input;
  const counts = new Map(places.map(({ node }) => [node.out.id, new Uint32Array(node.out.cols)]));
  await readText(input, ({ id, cols }, data, rows, done) => {
    const own = counts.get(id);
    if (own) for (let i = 0; i < rows * cols; i++) if (data[i]! > 0) own[i % cols]!++;
    input.progress("reading", (done + rows) / tokens, 2);
  });
  const moves = new Map<string, Move>();
  const { nodes } = input.plan.graph;
  const [makers, readers] = [makersOf(nodes), readersOf(nodes)];
  const layers: OrderedLayer[] = [];
  for (const network of reluNetworks(nodes)) {
    const opened = openedBy(network);
    const place = places.find(({ node }) => node.out === opened);
    const inner = nodesBehind(network.down, makers, readers);
    if (!place || !inner) continue;
    const own = counts.get(opened.id)!;
    const order = Uint32Array.from(own.keys()).sort((a, b) => own[b]! - own[a]! || a - b);
    const move = (weight: Weight, axis: Move["axis"]) => {
      checkWeight(weight, axis, file);
      moves.set(weight.name, { axis, order });
    };
    for (const node of inner) {
      if (node.op !== "matmul") continue;
      move(node.weight, "rows");
      if (node.bias) move(node.bias, "rows");
    }
    move((network.down as NodeOf<"matmul">).weight, "columns");
    layers.push({ layer: place.layer, ...sharesOf(own, order, tokens) });
  }
  if (layers.length === 0) {
    throw new ModelError(`sparsify: no network of ${file.name} has neurons that can be moved`);
  }
  const total = modelBytes(file);
  let written = 0;
  const tensors = modelTensors(file).map((tensor): GgufTensor => {
    const move = moves.get(tensor.name);
    const data = move ? () => moved(input, tensor, move) : tensor.data;
    return {
      ...tensor,
      data: async function* () {
        for await (const bytes of data()) {
          await pausing(input);
          yield bytes;
          written += bytes.length;
          input.progress("writing", 1 + written / total, 2);
        }
      },
    };
  });
  await writeGguf(sink, entriesOf(file, tokens), tensors);
  return layers;
}

function sharesOf(
  counts: Uint32Array,
  order: Uint32Array,
  tokens: number,
): Omit<OrderedLayer, "layer"> {
  const all = Math.max(
    1,
    counts.reduce((sum, count) => sum + count, 0),
  );
  const first = (share: number) => {
    const own = order.subarray(0, Math.round(order.length * share));
    return own.reduce((sum, neuron) => sum + counts[neuron]!, 0) / all;
  };
  return {
    open: all / (tokens * counts.length),
    firstTenth: first(0.1),
    firstQuarter: first(0.25),
    firstHalf: first(0.5),
  };
}

function checkWeight({ name, source, dtype }: Weight, axis: Move["axis"], file: ModelFile): void {
  if (source) {
    throw new ModelError(
      `sparsify: ${name} of ${file.name} is a part of another tensor, whose rows are not moved`,
    );
  }
  if (axis === "columns" && !dtype.quantize) {
    throw new ModelError(
      `sparsify: ${name} of ${file.name} is ${dtype.name}, which cannot be quantized again. Order the model in F16 or Q8_0, then quantize it`,
    );
  }
}

/** The bytes of a tensor with its rows or columns in another order. */
async function* moved(
  { file }: OrderInput,
  { name, dtype, shape }: GgufTensor,
  { axis, order }: Move,
): AsyncGenerator<Uint8Array> {
  const tensor = file.tensors.get(name)!;
  const bytes = new Uint8Array(tensor.byteLength);
  await file.readTensor(tensor, bytes, 0);
  const rows = axis === "rows" ? order.length : shape[0]!;
  const rowBytes = bytes.length / rows;
  const together = Math.max(1, Math.floor((1 << 20) / rowBytes));
  const values = new Float32Array(order.length);
  const floats = new Float32Array(order.length);
  for (let first = 0; first < rows; first += together) {
    const count = Math.min(together, rows - first);
    const piece = new Uint8Array(count * rowBytes);
    for (let i = 0; i < count; i++) {
      const at = first + i;
      if (axis === "rows") {
        const from = order[at]! * rowBytes;
        piece.set(bytes.subarray(from, from + rowBytes), i * rowBytes);
      } else
        moveColumns(dtype, bytes, at * rowBytes, piece, i * rowBytes, { order, values, floats });
    }
    yield piece;
  }
}

/** One row with its columns in another order. */
function moveColumns(
  dtype: DType,
  source: Uint8Array,
  from: number,
  target: Uint8Array,
  to: number,
  { order, values, floats }: { order: Uint32Array; values: Float32Array; floats: Float32Array },
): void {
  const blocks = order.length / dtype.blockElems;
  dtype.dequantize(source, from, values, 0, blocks);
  for (let i = 0; i < order.length; i++) floats[i] = values[order[i]!]!;
  dtype.quantize!(floats, 0, target, to, blocks);
}

function modelBytes({ tensors }: ModelFile): number {
  return [...tensors.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
}

/** The metadata of the model, which is one file now. */
function entriesOf({ metadata }: ModelFile, tokens: number): [string, GgufValue][] {
  const kept = [...metadata.keys()].filter(
    (key) => !key.startsWith("split.") && key !== ORDERED_TOKENS,
  );
  return [
    ...kept.map((key): [string, GgufValue] => [
      key,
      metadata.preview(key, Number.POSITIVE_INFINITY)!,
    ]),
    [ORDERED_TOKENS, { type: "u32", value: tokens }],
  ];
}

/** The number of tokens that the order of the neurons is from. */
const ORDERED_TOKENS = "lantern.neurons_ordered_by_tokens";
