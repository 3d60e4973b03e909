// A compute thread's entry: gets its job once, then works on the shared memory until the team is stopped.

import { type ComputeJob, serveCompute } from "./backends/cpu/compute.ts";
import { currentPlatform } from "./platform/current.ts";

const port = (await currentPlatform()).enginePort();
port.onMessage((job) => {
  // Its only message: from there on everything goes through shared memory.
  serveCompute(job as ComputeJob, () => port.post("ready"));
  port.close();
});
