// A compute thread's entry: gets its job once, then works on the shared memory until the team is stopped.

import type { guardCalls } from "../backends/cpu/guard/guard-calls.ts";
import { type ComputeJob, serveCompute } from "../backends/cpu/threads/compute.ts";
import { currentPlatform } from "../platform/current.ts";
import type { NativeAccess } from "../platform/platform.ts";

const platform = await currentPlatform();
const port = platform.enginePort();
port.onMessage((message) => {
  // Its only message: from there on everything goes through shared memory.
  const job = message as ComputeJob;
  if (job.native || job.guard) void prepareAndServe(job);
  else serve(job, "all kernels are WebAssembly");
});

async function prepareAndServe(job: ComputeJob): Promise<void> {
  const host = await platform.native();
  const guard = job.guard && (await import("../backends/cpu/guard/guard-calls.ts"));
  serve(job, host, guard?.guardCalls);
}

function serve(job: ComputeJob, host: NativeAccess, watch?: typeof guardCalls): void {
  serveCompute(job, host, () => port.post("ready"), watch);
  port.close();
}
