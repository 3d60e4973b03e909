// The way between the host and a GPU: bytes per second in each direction, and what a batch costs by itself, however little it
// computes (commands go there, a result comes back). By small copies and the host's clock; of several rounds the fastest counts.

import type { GpuDevice } from "../backends/webgpu/device.ts";
import { MAP_READ, usage } from "../backends/webgpu/usage.ts";
import type { GpuLink } from "../limits/gpu-device.ts";

const ROUNDS = 5;
const ROUND_TRIPS = 40;
const HARDWARE_BYTES = 64 << 20;
const SOFTWARE_BYTES = 8 << 20;

/** A second at most on a GPU; the device stays the caller's. */
export async function measureLink({ device, facts }: GpuDevice): Promise<GpuLink> {
  const size = Math.min(facts.isSoftware ? SOFTWARE_BYTES : HARDWARE_BYTES, facts.maxBufferBytes);
  const there = device.createBuffer({
    size,
    usage: usage.storage | usage.copySource | usage.copyTarget,
  });
  const back = device.createBuffer({ size, usage: usage.mapRead | usage.copyTarget });
  const data = new Uint8Array(size);
  const bring = async (bytes: number): Promise<void> => {
    const commands = device.createCommandEncoder();
    commands.copyBufferToBuffer(there, 0, back, 0, bytes);
    device.queue.submit([commands.finish()]);
    await back.mapAsync(MAP_READ, 0, bytes);
    data.set(new Uint8Array(back.getMappedRange(0, bytes)));
    back.unmap();
  };
  const send = async (): Promise<void> => {
    device.queue.writeBuffer(there, 0, data);
    await device.queue.onSubmittedWorkDone();
  };
  try {
    const wait = await fastest(ROUND_TRIPS, () => bring(4));
    const up = await fastest(ROUNDS, send);
    const down = await fastest(ROUNDS, () => bring(size));
    return {
      uploadBytesPerSecond: size / Math.max(up - wait, 1e-9),
      downloadBytesPerSecond: size / Math.max(down - wait, 1e-9),
      roundTripSeconds: wait,
    };
  } finally {
    there.destroy();
    back.destroy();
  }
}

/** Seconds. The first time only warms up. */
async function fastest(rounds: number, work: () => Promise<void>): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round <= rounds; round++) {
    const before = performance.now();
    await work();
    if (round > 0) least = Math.min(least, (performance.now() - before) / 1000);
  }
  return least;
}
