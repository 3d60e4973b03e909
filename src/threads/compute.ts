// Entry of a compute thread: it gets one job, then works in shared memory until its team is stopped.

import type { guardCalls } from "../backends/cpu/guard/guard-calls.ts";
import { type ComputeJob, serveCompute } from "../backends/cpu/threads/compute.ts";
import { bindThread } from "../machine/bind.ts";
import { currentPlatform } from "../platform/current.ts";
import type { NativeAccess } from "../platform/platform.ts";

const platform = await currentPlatform();
const port = platform.enginePort();
port.onMessage((message) => {
  // The only message: everything after it goes through shared memory.
  const job = message as ComputeJob;
  if (job.native || job.guard || job.cpus) void prepareAndServe(job);
  else serve(job, "all kernels are WebAssembly");
});

async function prepareAndServe(job: ComputeJob): Promise<void> {
  const host = await platform.native();
  if (job.cpus) bindThread(host, job.cpus);
  const guard = job.guard && (await import("../backends/cpu/guard/guard-calls.ts"));
  serve(job, host, guard?.guardCalls);
}

function serve(job: ComputeJob, host: NativeAccess, watch?: typeof guardCalls): void {
  serveCompute(job, host, () => port.post("ready"), platform.readAt, watch);
  port.close();
}
