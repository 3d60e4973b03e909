// The public API of verification: compares a backend with the reference, op by op. Backends and kernels are loaded
// when it is called: a page that only opens models never loads them here.

import type { ModelLocation } from "../../api/api.ts";
import type { VerifyOptions } from "./options.ts";
import type { Verification } from "./verify.ts";

export type { VerifyOptions } from "./options.ts";
export type {
  BackendVerification,
  ChainedVerdict,
  Difference,
  LogitsDifference,
  OpDifference,
  ValueDifference,
  Verification,
} from "./verify.ts";

/** Runs a model on each backend and on the reference and compares every value; blocks the calling thread meanwhile. */
export async function verify(
  model: ModelLocation,
  options: VerifyOptions = {},
): Promise<Verification> {
  const { verifyModel } = await import("./compose.ts");
  return await verifyModel(model, options);
}
