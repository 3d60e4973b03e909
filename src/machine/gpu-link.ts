// Measures the link between the host and a GPU: bytes per second in each direction, and the fixed cost of a batch, without its
// computation (commands go there, a result comes back). By small copies and the host's clock; of several rounds the fastest
// counts.

import type { GpuDevice } from "../backends/webgpu/device.ts";
import { MAP_READ, usage } from "../backends/webgpu/usage.ts";
import type { GpuLink } from "../limits/gpu-device.ts";

const ROUNDS = 5;
const ROUND_TRIPS = 40;
const HARDWARE_BYTES = 64 << 20;
const SOFTWARE_BYTES = 8 << 20;

/** A second at most on a GPU; the device stays the caller's. */
export async function measureLink(gpu: GpuDevice): Promise<GpuLink> {
  const { isSoftware, maxBufferBytes } = gpu.facts;
  const size = Math.min(isSoftware ? SOFTWARE_BYTES : HARDWARE_BYTES, maxBufferBytes);
  const copies = new GpuCopies(gpu, size);
  try {
    const wait = await fastest(ROUND_TRIPS, () => copies.roundTrip(0, 4));
    const up = await fastest(ROUNDS, () => copies.send());
    const down = await fastest(ROUNDS, () => copies.roundTrip(0, size));
    return {
      uploadBytesPerSecond: size / Math.max(up - wait, 1e-9),
      downloadBytesPerSecond: size / Math.max(down - wait, 1e-9),
      roundTripSeconds: wait,
    };
  } finally {
    copies.dispose();
  }
}

/** Copies between the host and a GPU, as a batch makes them. */
export class GpuCopies {
  readonly #device: GPUDevice;
  readonly #there: GPUBuffer;
  readonly #back: GPUBuffer;
  readonly #data: Uint8Array<ArrayBuffer>;

  /** `size`: the most bytes of a copy. */
  constructor({ device }: GpuDevice, size: number) {
    const target = usage.storage | usage.copySource | usage.copyTarget;
    this.#device = device;
    this.#there = device.createBuffer({ size, usage: target });
    this.#back = device.createBuffer({ size, usage: usage.mapRead | usage.copyTarget });
    this.#data = new Uint8Array(size);
  }

  /** Sends `there` bytes, 0 for none; then commands that compute nothing, and `back` bytes of a result. */
  async roundTrip(there: number, back: number): Promise<void> {
    const { queue } = this.#device;
    if (there > 0) queue.writeBuffer(this.#there, 0, this.#data, 0, there);
    const commands = this.#device.createCommandEncoder();
    commands.copyBufferToBuffer(this.#there, 0, this.#back, 0, back);
    queue.submit([commands.finish()]);
    await this.#back.mapAsync(MAP_READ, 0, back);
    this.#data.set(new Uint8Array(this.#back.getMappedRange(0, back)));
    this.#back.unmap();
  }

  /** Sends all bytes and waits until they are there. */
  async send(): Promise<void> {
    this.#device.queue.writeBuffer(this.#there, 0, this.#data);
    await this.#device.queue.onSubmittedWorkDone();
  }

  dispose(): void {
    this.#there.destroy();
    this.#back.destroy();
  }
}

/** Seconds. The first time only warms up. */
export async function fastest(rounds: number, work: () => Promise<void>): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round <= rounds; round++) {
    const before = performance.now();
    await work();
    if (round > 0) least = Math.min(least, (performance.now() - before) / 1000);
  }
  return least;
}
