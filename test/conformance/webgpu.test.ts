// The conformance table on the GPU. (Which models agree with llama.cpp there: test/models/webgpu-tiny-golden.test.ts.)

import { leftOutOnSecond } from "../support/exhaustive.ts";
import { gpuBackend, gpuLacks } from "../support/gpu.ts";
import { testTable } from "./test-table.ts";

/** On a second driver: every op but those of webgpu-scans.test.ts, and a type for each way to unpack. Models: webgpu-tiny-golden.test.ts. */
const ofSecond =
  /^op (?!ssm_scan|short_conv|delta_net|wkv)|^dtype (f32|f16|bf16|q4_0|q5_1|q6_k|iq2_xs|iq4_nl|mxfp4)$/;
const leavesOut = ({ name }: { readonly name: string }): string | undefined =>
  ofSecond.test(name) ? undefined : leftOutOnSecond;

// Fewer batches than elsewhere: a software adapter is slow.
testTable({ target: "webgpu", create: gpuBackend, batches: 6, least: 2e-7, leavesOut }, gpuLacks);
