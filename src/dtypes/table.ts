// The table of tensor types: one line for each. Nothing else in the project lists them.

import { ModelError } from "../base/errors.ts";
import type { DType } from "./dtype.ts";

const builtIn: readonly DType[] = [];

const byName = new Map<string, DType>();
const byGgufId = new Map<number, DType>();
for (const dtype of builtIn) registerDType(dtype);

/** Adds a type (used by the table itself and by extensions); a name or id that is taken is an error. */
export function registerDType(dtype: DType): void {
  const taken = byName.get(dtype.name) ?? byGgufId.get(dtype.ggufId);
  if (taken) {
    throw new ModelError(
      `dtype "${dtype.name}" (gguf id ${dtype.ggufId}) collides with "${taken.name}" (gguf id ${taken.ggufId})`,
    );
  }
  byName.set(dtype.name, dtype);
  byGgufId.set(dtype.ggufId, dtype);
}

export function dtypeByName(name: string): DType | undefined {
  return byName.get(name.toLowerCase());
}

export function dtypeByGgufId(id: number): DType | undefined {
  return byGgufId.get(id);
}

export function allDTypes(): readonly DType[] {
  return [...byName.values()];
}
