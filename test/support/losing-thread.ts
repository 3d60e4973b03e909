// An engine's thread that loses its device when it is told to, some work after a message with the magic words: the GPU's device, which
// is destroyed, or that of a backend which only says that it has one. Everything else is the real thread.

import { parentPort, workerData } from "node:worker_threads";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { registerBackend } from "../../src/backends/table.ts";
import { DeviceLostError } from "../../src/base/errors.ts";
import { nodePlatform } from "../../src/platform/node.ts";

const { words } = workerData as { words: string };
/** Batches, or submissions to the GPU, until the device is lost; undefined: it is not. */
let left: number | undefined;

function isLostNow(): boolean {
  if (left === undefined || --left > 0) return false;
  left = undefined;
  return true;
}

const port = parentPort!;
const listen = port.on.bind(port);
port.on = ((name: "message", listener: (message: unknown) => void) =>
  listen(name, (message: { params?: unknown }) => {
    if (JSON.stringify(message.params ?? "").includes(words)) left = 5;
    listener(message);
  })) as typeof port.on;

/** The reference, as if a device computed it. */
class Losing extends ReferenceBackend {
  readonly #lost = Promise.withResolvers<DeviceLostError>();
  readonly lost = this.#lost.promise;
  #isLost = false;

  constructor() {
    super();
    const compute = super.run.bind(this);
    const run: Backend["run"] = async (batch, options) => {
      await new Promise((resolve) => setImmediate(resolve));
      this.#isLost ||= isLostNow();
      const error = new DeviceLostError('the GPU "none" was lost (for a test)');
      if (this.#isLost) this.#lost.resolve(error);
      if (this.#isLost) throw error;
      compute(batch, options);
    };
    Object.assign(this, { run });
  }
}
registerBackend({ name: "losing", available: () => true, create: () => new Losing() });

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

/** Destroys the device right after a submission, when its time has come. */
function watched(device: GPUDevice): GPUDevice {
  const { queue } = device;
  const submit = queue.submit.bind(queue);
  queue.submit = (commands) => {
    submit(commands);
    if (isLostNow()) device.destroy();
    return undefined;
  };
  Object.defineProperty(device, "queue", { value: queue }); // one object: Dawn makes a new one for every use
  return device;
}

await import("../../src/threads/engine.ts");
