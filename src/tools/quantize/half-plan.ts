// Tensors that F16 cannot hold keep their type, as in a conversion. A tensor's type is in the header of the new file, so
// they are read before anything is written.

import { halfRangeOf, isHeldAsHalf } from "../../formats/half-weights.ts";
import type { ModelFile } from "../../formats/model-file.ts";
import type { PlannedTensor } from "./plan.ts";

export interface HalfPlan {
  readonly plan: PlannedTensor[];
  /** The bytes that were read to find out. */
  readonly scannedBytes: number;
}

/** `onPiece` throws when the work should stop. */
export async function withoutOverflow(
  file: ModelFile,
  wanted: readonly PlannedTensor[],
  onPiece: (doneBytes: number, totalBytes: number, tensor: string) => void,
): Promise<HalfPlan> {
  const scanned = wanted.filter(({ tensor, target }) => isHeldAsHalf(tensor, target));
  const scannedBytes = scanned.reduce((sum, { tensor }) => sum + tensor.byteLength, 0);
  const plan = [...wanted];
  let done = 0;
  for (const planned of scanned) {
    const { tensor } = planned;
    const range = await halfRangeOf(file, tensor, (bytes) => {
      done += bytes;
      onPiece(done, scannedBytes, tensor.name);
    });
    const problem = range.problem();
    // A value that no type can hold is an error, which quantizing the tensor reports.
    if (problem === undefined || !range.isFinite) continue;
    const { dtype: target, byteLength: targetBytes } = tensor;
    const note = `it keeps ${target.name}: ${problem}`;
    plan[plan.indexOf(planned)] = { ...planned, target, targetBytes, note };
  }
  return { plan, scannedBytes };
}
