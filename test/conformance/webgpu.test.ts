// The conformance table on the GPU. (Which models agree with llama.cpp there: test/models/webgpu-tiny-golden.test.ts.)

import { gpuBackend, gpuLacks } from "../support/gpu.ts";
import { testTable } from "./test-table.ts";

// Fewer batches than elsewhere: a software adapter is slow.
testTable({ target: "webgpu", create: gpuBackend, batches: 6, least: 2e-7 }, gpuLacks);
