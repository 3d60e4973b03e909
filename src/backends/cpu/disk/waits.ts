// Puts disk_wait instructions before the matmuls whose weights are on disk. A stage of several such matmuls (q, k and v) waits for
// all of their weights at once, unless the ring has no room for that beside the weights that are read ahead.

import type { GraphNode } from "../../../graph/graph.ts";
import type { DiskWait } from "../ops/disk-wait.ts";
import type { Stage } from "../program.ts";
import type { DiskLayout } from "./layout.ts";

/** `I` is any instruction: the table of ops imports this file's result. */
export interface Listed<I> {
  readonly instructions: readonly I[];
  readonly stages: readonly Stage[];
  /** Which instruction finishes each node. */
  readonly lastInstruction: ReadonlyMap<GraphNode, number>;
}

/** `onDisk`: the number of the weight on disk that an instruction reads. */
export function withWaits<I>(
  { instructions, stages, lastInstruction }: Listed<I>,
  onDisk: ReadonlyMap<number, number>,
  layout: DiskLayout,
): Listed<I | DiskWait> {
  const { words, done, message, weights, waitMs } = layout.program;
  const wait = (first: number, count: number): DiskWait => ({
    op: "disk_wait",
    words,
    done,
    message,
    waitMs,
    name: weights[first]?.name ?? "",
    weights: weights.length,
    first,
    pieces: weights.slice(first, first + count).map(({ pieces }) => pieces),
  });
  const made: (I | DiskWait)[] = [];
  const madeStages: Stage[] = [];
  const moved = new Map<number, number>();
  const push = (kind: Stage["kind"], added: readonly (I | DiskWait)[]) => {
    madeStages.push({ kind, instructions: added.map((one) => made.push(one) - 1) });
  };
  for (const { kind, instructions: own } of stages) {
    for (const part of parts(own, onDisk, layout)) {
      const read = part.flatMap((index) => onDisk.get(index) ?? []);
      if (read.length > 0) push("as one", [wait(read[0]!, read.length)]);
      for (const [i, index] of part.entries()) moved.set(index, made.length + i);
      push(
        kind,
        part.map((index) => instructions[index]!),
      );
    }
  }
  push("as one", [wait(weights.length, 0)]);
  return {
    instructions: made,
    stages: madeStages,
    lastInstruction: new Map(
      [...lastInstruction].map(([node, index]) => [node, moved.get(index)!]),
    ),
  };
}

/** A stage's instructions in as few parts as the ring allows. */
function parts(
  stage: readonly number[],
  onDisk: ReadonlyMap<number, number>,
  { plan: { places, setBytes } }: DiskLayout,
): number[][] {
  const made: number[][] = [[]];
  let first: number | undefined;
  let bytes = 0;
  for (const index of stage) {
    const weight = onDisk.get(index);
    if (weight !== undefined) {
      const { panelBytes, needs } = places[weight]!;
      bytes += panelBytes;
      if (first !== undefined && (needs > first || bytes > setBytes)) {
        made.push([]);
        first = undefined;
        bytes = panelBytes;
      }
      first ??= weight;
    }
    made.at(-1)!.push(index);
  }
  return made;
}
