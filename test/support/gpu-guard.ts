// Guard mode for a GPU, in tests: every buffer gets bytes behind it that are NaNs and belong to nobody. They are bound with it, so
// that no driver's own checks hide anything: a shader that reads beyond its buffer computes NaNs, and one that writes there is
// found when the bytes are looked at. Weights that share a buffer are bound in parts, of which only the last has such bytes.

/** Behind every buffer. */
const SLACK = 1024;

export interface GpuGuard {
  /** How many buffers are watched. */
  readonly watched: number;
  /** The buffers behind which something was written. */
  changed(): Promise<string[]>;
}

/** Watches all buffers that are made with this device from now on. */
export function guardGpu(device: GPUDevice): GpuGuard {
  const watched: { readonly buffer: GPUBuffer; readonly size: number }[] = [];
  const createBuffer = device.createBuffer.bind(device);

  device.createBuffer = (descriptor) => {
    const { size, usage } = descriptor;
    const isStorage = (usage & 0x80) !== 0;
    if (!isStorage) return createBuffer(descriptor);
    const whole = Math.ceil(size / 4) * 4;
    const buffer = createBuffer({ ...descriptor, size: whole + SLACK, usage: usage | 0x4 | 0x8 });
    device.queue.writeBuffer(buffer, whole, new Uint8Array(SLACK).fill(0xff));
    watched.push({ buffer, size: whole });
    return buffer;
  };

  return {
    get watched() {
      return watched.length;
    },
    changed: async () => {
      const read = createBuffer({ size: watched.length * SLACK, usage: 0x1 | 0x8 });
      const commands = device.createCommandEncoder();
      watched.forEach(({ buffer, size }, i) => {
        commands.copyBufferToBuffer(buffer, size, read, i * SLACK, SLACK);
      });
      device.queue.submit([commands.finish()]);
      await read.mapAsync(0x1);
      const bytes = new Uint8Array(read.getMappedRange().slice(0));
      read.destroy();
      return watched
        .filter((_, i) => bytes.subarray(i * SLACK, (i + 1) * SLACK).some((byte) => byte !== 0xff))
        .map(({ buffer }) => buffer.label);
    },
  };
}
