// A compute thread's entry: gets its job once, then works on the shared memory until the team is stopped.

import { type ComputeJob, serveCompute } from "./backends/cpu/compute.ts";
import { currentPlatform } from "./platform/current.ts";
import type { NativeAccess } from "./platform/platform.ts";

const platform = await currentPlatform();
const port = platform.enginePort();
port.onMessage((message) => {
  // Its only message: from there on everything goes through shared memory.
  const job = message as ComputeJob;
  if (job.native) void platform.native().then((host) => serve(job, host));
  else serve(job, "all kernels are WebAssembly");
});

function serve(job: ComputeJob, host: NativeAccess): void {
  serveCompute(job, host, () => port.post("ready"));
  port.close();
}
