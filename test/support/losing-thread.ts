// An engine's thread that loses its device when it is told to, some work after a message with the magic words: the GPU's device, which
// is destroyed, or that of a backend which only says that it has one. With a file of a limit (memory-limit-layer.c) the GPU has no
// memory at that time, and loses its device itself; the backend "full" says so. Everything else is the real thread.

import { writeFileSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import type { Backend, LayerPlace } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { registerBackend } from "../../src/backends/table.ts";
import { DeviceLostError, DeviceMemoryError } from "../../src/base/errors.ts";
import { layerCount } from "../../src/graph/graph.ts";
import { nodePlatform } from "../../src/platform/node.ts";

const { words, limitFile } = workerData as { words: string; limitFile?: string };
/** Batches, or submissions to the GPU, until the device is lost; undefined: it is not. */
let left: number | undefined;
/** It was opened again, with fewer layers: there is memory enough. */
let hasFewer = false;

function isLostNow(): boolean {
  if (left === undefined || --left > 0) return false;
  left = undefined;
  return true;
}

const port = parentPort!;
const listen = port.on.bind(port);
port.on = ((name: "message", listener: (message: unknown) => void) =>
  listen(name, (message: { params?: unknown }) => {
    const { mostGpuLayers } = (message.params ?? {}) as { mostGpuLayers?: number };
    hasFewer ||= mostGpuLayers !== undefined;
    if (!hasFewer && JSON.stringify(message.params ?? "").includes(words)) left = 5;
    listener(message);
  })) as typeof port.on;

/** The reference, as if a device computed it. */
class Losing extends ReferenceBackend {
  readonly #lost = Promise.withResolvers<DeviceLostError>();
  readonly lost = this.#lost.promise;
  #isLost = false;

  constructor(
    error: DeviceLostError = new DeviceLostError('the GPU "none" was lost (for a test)'),
  ) {
    super();
    const compute = super.run.bind(this);
    const run: Backend["run"] = async (batch, options) => {
      await new Promise((resolve) => setImmediate(resolve));
      this.#isLost ||= isLostNow();
      if (this.#isLost) this.#lost.resolve(error);
      if (this.#isLost) throw error;
      compute(batch, options);
    };
    Object.assign(this, { run });
  }
}
/** All layers are on its device, until it is opened with fewer. */
class Full extends Losing {
  #layers = 0;

  constructor() {
    super(new DeviceMemoryError('the GPU "none" ran out of memory (for a test)'));
  }

  override prepare(...[plan, kv]: Parameters<ReferenceBackend["prepare"]>): void {
    this.#layers = layerCount(plan.graph);
    super.prepare(plan, kv);
  }

  placement(): readonly LayerPlace[] {
    const place = { firstLayer: 0, layers: this.#layers, hasOutput: true, weightBytes: 1 };
    return [{ ...place, backend: this.name, isDevice: !hasFewer }];
  }
}
registerBackend({ name: "losing", available: () => true, create: () => new Losing() });
registerBackend({ name: "full", available: () => true, create: () => new Full() });

const access = await nodePlatform.gpu();
if (typeof access !== "string") {
  const { gpu } = access;
  const { requestAdapter } = gpu;
  gpu.requestAdapter = async (options) => {
    const adapter = await requestAdapter.call(gpu, options);
    const requestDevice = adapter?.requestDevice.bind(adapter);
    if (adapter && requestDevice)
      adapter.requestDevice = async (wanted) => watched(await requestDevice(wanted));
    return adapter;
  };
}

/** Destroys the device right after a submission, when its time has come, or writes more to it than there is memory for. */
function watched(device: GPUDevice): GPUDevice {
  const { queue } = device;
  const submit = queue.submit.bind(queue);
  queue.submit = (commands) => {
    submit(commands);
    if (!isLostNow()) return undefined;
    if (limitFile === undefined) device.destroy();
    else {
      const [size, usage] = [16 * 2 ** 20, 0x8];
      const target = device.createBuffer({ size, usage });
      const commands = device.createCommandEncoder();
      commands.clearBuffer(target);
      submit([commands.finish()]); // a write to a buffer that is used needs a copy
      writeFileSync(limitFile, "1");
      queue.writeBuffer(target, 0, new Uint8Array(size));
      submit([]);
      writeFileSync(limitFile, "0");
    }
    return undefined;
  };
  Object.defineProperty(device, "queue", { value: queue }); // one object: Dawn makes a new one for every use
  return device;
}

await import("../../src/threads/engine.ts");
