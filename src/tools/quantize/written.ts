// The summary of a quantization: each type with the tensors that have it for the same reason, and the warnings before it begins. It
// is made from the plan alone.

import { dtypeByName } from "../../dtypes/table.ts";
import { isQuantizable } from "../../formats/quantizable.ts";
import type { FileType } from "./file-types.ts";
import type { PlannedTensor } from "./plan.ts";

/** The tensors of one type that have it for one reason. */
export interface WrittenType {
  readonly type: string;
  readonly tensors: number;
  readonly bytes: number;
  /** Why it is not the file's type; absent: it is. */
  readonly reason?: string;
  /** The first of them. */
  readonly first: string;
}

/** The type with the most bytes first. */
export function writtenTypes(plan: readonly PlannedTensor[], type: FileType): WrittenType[] {
  const found = new Map<string, WrittenType>();
  for (const planned of plan) {
    const { target, targetBytes, tensor } = planned;
    const reason = reasonOf(planned, type);
    const key = `${target.name} ${reason}`;
    const known = found.get(key);
    found.set(key, {
      type: target.name,
      tensors: (known?.tensors ?? 0) + 1,
      bytes: (known?.bytes ?? 0) + targetBytes,
      ...(reason !== undefined && { reason }),
      first: known?.first ?? tensor.name,
    });
  }
  return [...found.values()].toSorted((a, b) => b.bytes - a.bytes);
}

function reasonOf({ tensor, target, note }: PlannedTensor, type: FileType): string | undefined {
  if (note !== undefined) return note;
  if (target.name === type.base) return undefined;
  if (!isQuantizable(tensor)) return "never quantized (vectors, norms, routers)";
  if (target === tensor.dtype) return "left as it was";
  return `the mix of ${type.name}`;
}

/** Warns if no tensor gets the type that the file is named for. */
export function planWarnings(plan: readonly PlannedTensor[], type: FileType): string[] {
  const isFloat = dtypeByName(type.base)!.blockElems === 1;
  if (isFloat || plan.some(({ target }) => target.name === type.base)) return [];
  const matrices = plan.filter(({ tensor }) => isQuantizable(tensor));
  const types = [...new Set(matrices.map(({ target }) => target.name))].join(", ");
  const why = type.without ?? matrices.find(({ note }) => note !== undefined)?.note;
  return [
    `no tensor becomes ${type.base}, although the type is ${type.name}: its matrices become ${types}${why === undefined ? "" : `, because ${why}`}`,
  ];
}
