// The table of tensor types: one line for each. Nothing else in the project lists them.

import { ModelError } from "../base/errors.ts";
import { bf16 } from "./bf16.ts";
import type { DType } from "./dtype.ts";
import { f16 } from "./f16.ts";
import { f32 } from "./f32.ts";
import { iq1_m } from "./iq1_m.ts";
import { iq1_s } from "./iq1_s.ts";
import { iq2_s } from "./iq2_s.ts";
import { iq2_xs } from "./iq2_xs.ts";
import { iq2_xxs } from "./iq2_xxs.ts";
import { iq3_s } from "./iq3_s.ts";
import { iq3_xxs } from "./iq3_xxs.ts";
import { iq4_nl } from "./iq4_nl.ts";
import { iq4_xs } from "./iq4_xs.ts";
import { mxfp4 } from "./mxfp4.ts";
import { q2_k } from "./q2_k.ts";
import { q3_k } from "./q3_k.ts";
import { q4_0 } from "./q4_0.ts";
import { q4_1 } from "./q4_1.ts";
import { q4_k } from "./q4_k.ts";
import { q5_0 } from "./q5_0.ts";
import { q5_1 } from "./q5_1.ts";
import { q5_k } from "./q5_k.ts";
import { q6_k } from "./q6_k.ts";
import { q8_0 } from "./q8_0.ts";
import { q8_1 } from "./q8_1.ts";
import { q8_k } from "./q8_k.ts";
import { tq1_0 } from "./tq1_0.ts";
import { tq2_0 } from "./tq2_0.ts";

const builtIn: readonly DType[] = [
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q8_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  q8_k,
  iq4_nl,
  iq4_xs,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq1_s,
  iq1_m,
  tq1_0,
  tq2_0,
  mxfp4,
];

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
