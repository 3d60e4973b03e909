// The check of subgroups when a device is opened (subgroup-probe.ts), on adapters that say 32 lanes and have 4 or 8: with their own
// shuffles, and with some that are emulated, right and wrong.
// Held against: adapters whose shuffles the test makes right or wrong.

import { expect, test, vi } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { GpuDevice } from "../../src/backends/webgpu/device.ts";
import { probeSubgroups } from "../../src/backends/webgpu/subgroup-probe.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { exchangeFor } from "../../src/backends/webgpu/wgsl/subgroups.ts";
import { DeviceLostError } from "../../src/base/errors.ts";
import { gpuInfo } from "../../src/index.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import type { GpuAccess } from "../../src/platform/platform.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { claimingAccess } from "../support/claiming-gpu.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";

/** WGSL of shuffles through workgroup memory, in place of the driver's. */
const emulation = `
var<workgroup> sent: array<vec4f, 256>;
var<private> ownLane: u32;
fn shuffledVector(value: vec4f, mask: u32) -> vec4f {
  workgroupBarrier();
  sent[ownLane] = value;
  workgroupBarrier();
  return sent[ownLane ^ mask];
}
fn shuffledValue(value: f32, mask: u32) -> f32 { return shuffledVector(vec4f(value), mask).x; }
fn shuffledWord(value: u32, mask: u32) -> u32 { return u32(shuffledValue(f32(value), mask)); }
`;

function emulated(code: string): string {
  return `${code
    .replace(/(fn main\([^{]*\{)/, "$1 ownLane = lane;")
    .replaceAll("subgroupShuffleXor(values,", "shuffledVector(values,")
    .replaceAll("subgroupShuffleXor(value,", "shuffledValue(value,")
    .replaceAll("subgroupShuffleXor(word,", "shuffledWord(word,")}${emulation}`;
}

/** An adapter that says 32 lanes; the texts of its kernels are changed. */
async function claiming(text?: (code: string) => string): Promise<Exclude<GpuAccess, string>> {
  return claimingAccess(await nodePlatform.gpu(), (device) => {
    if (!text) return;
    const createShaderModule = device.createShaderModule.bind(device);
    device.createShaderModule = (descriptor) =>
      createShaderModule({ ...descriptor, code: text(descriptor.code) });
  });
}

/** What the device is found to be, after it was opened and can be used. */
async function opened(text?: (code: string) => string) {
  const gpu = await GpuDevice.open(await claiming(text));
  try {
    await new Promise((resolve) => setTimeout(resolve)); // an error that nobody caught would be known now
    gpu.check();
    return { facts: gpu.facts, notes: new WebGpuBackend(gpu).explain() };
  } finally {
    gpu.dispose();
  }
}

const refused = (why: RegExp) => ({
  subgroups: undefined,
  subgroupMatrix: false,
  subgroupShuffles: expect.stringMatching(why),
});

describeGpu("webgpu: a device that says its subgroups have 32 lanes", () => {
  test("has fewer: its kernels use workgroup memory, and it says why", async () => {
    const honest = await openGpu();
    const { min } = honest.facts.subgroups!;
    honest.dispose();
    const { facts, notes } = await opened();
    const why = `the device says at least 32 lanes, but \\d+ of 3072 values that lanes ${min} apart exchanged are wrong`;
    expect(facts).toMatchObject(refused(new RegExp(`^${why}$`)));
    expect(exchangeFor(facts.subgroups).enables).toEqual([]);
    expect(notes.join("\n")).toMatch(new RegExp(`^subgroups are not used: ${why}$`, "m"));
  });

  test("shuffles as it should: it keeps them", async () => {
    const { facts, notes } = await opened(emulated);
    expect(facts).toMatchObject({
      subgroups: { min: 32, max: 32 },
      subgroupMatrix: true,
      subgroupShuffles: true,
    });
    expect(exchangeFor(facts.subgroups).enables).toEqual(["subgroups"]);
    expect(notes.join()).not.toContain("subgroups");
  });

  test.each(["shuffledWord(word,", "shuffledValue(value,", "shuffledVector(values,"])(
    "gives the value of another lane in one of its shuffles, %s",
    async (call) => {
      const { facts } = await opened((code) =>
        emulated(code).replace(`${call} 16u)`, `${call} 17u)`),
      );
      expect(facts).toMatchObject(refused(/ but 1024 of 3072 values that lanes 16 apart /));
    },
  );

  test("runs the kernel in some lanes only", async () => {
    const { facts } = await opened((code) =>
      emulated(code).replace("atomicAdd(&counts[0], 1u);", "atomicAdd(&counts[0], lane & 1u);"),
    );
    expect(facts).toMatchObject(refused(/ counted 512 lanes instead of 1024$/));
  });

  test("does not compile the kernel: the error is told, and none of later kernels", async () => {
    const { facts } = await opened((code) => `${code} nonsense`);
    expect(facts).toMatchObject(refused(/ failed \(.*WGSL.*nonsense.*\)$/));
  });

  test("refuses a command: the error is told", async () => {
    const access = claimingAccess(await nodePlatform.gpu(), (device) => {
      const createBuffer = device.createBuffer.bind(device);
      // Storage, without what a binding needs.
      device.createBuffer = (descriptor) =>
        createBuffer({ ...descriptor, usage: descriptor.usage & ~0x80 || descriptor.usage });
    });
    const gpu = await GpuDevice.open(access);
    await new Promise((resolve) => setTimeout(resolve));
    gpu.check();
    expect(gpu.facts).toMatchObject(refused(/ failed \(.*usage.*\)$/i));
    gpu.dispose();
  });

  test("is lost meanwhile: that is a loss, and says nothing of subgroups", async () => {
    const lost = claimingAccess(await nodePlatform.gpu(), (device) => {
      const { queue } = device;
      const submit = queue.submit.bind(queue);
      queue.submit = (commands) => {
        submit(commands);
        device.destroy();
      };
    });
    await expect(GpuDevice.open(lost)).rejects.toThrow(DeviceLostError);
  });
});

describeGpu("webgpu: the real shuffles of a software adapter", () => {
  test("are right over the lanes that it says, and wrong beyond", async () => {
    const gpu = await openGpu();
    const { min, max } = gpu.facts.subgroups!;
    expect(min).toBe(max);
    expect(min).toBeGreaterThanOrEqual(4);
    // Not tried when it was opened: kernels do not use them.
    expect(gpu.facts.subgroupShuffles).toBeUndefined();
    expect(await probeSubgroups(gpu, min)).toBe(true);
    expect(await probeSubgroups(gpu, 2 * min)).toContain(`lanes ${min} apart`);
    gpu.check();
    gpu.dispose();
  });
});

describeGpu("lantern devices", () => {
  async function devices(access: GpuAccess, ...flags: string[]): Promise<string> {
    using _ = vi.spyOn(nodePlatform, "gpu").mockResolvedValue(access);
    const terminal = new FakeTerminal();
    expect(await main(["devices", ...flags], terminal)).toBe(0);
    return terminal.stdout;
  }

  test("says why subgroups are not used", async () => {
    const access = await claiming();
    expect(await devices(access)).toMatch(
      /^subgroups +not used: the device says at least 32 lanes, but .* are wrong$/m,
    );
    const json = JSON.parse(await devices(access, "--json")) as { devices: unknown[] };
    expect(json.devices).toMatchObject([
      { subgroups: null, subgroup_shuffles: expect.stringContaining("are wrong") },
    ]);
  });

  test("says that they were checked", async () => {
    const access = await claiming(emulated);
    expect(await devices(access)).toMatch(/^subgroups +of 32 threads, checked$/m);
    const json = JSON.parse(await devices(access, "--json")) as { devices: unknown[] };
    expect(json.devices).toMatchObject([
      { subgroups: { min: 32, max: 32 }, subgroup_shuffles: true },
    ]);
  });

  test("a device that cannot be opened is none, and a sentence says why", async () => {
    const access = claimingAccess(await nodePlatform.gpu(), (device) => {
      device.destroy();
    });
    using _ = vi.spyOn(nodePlatform, "gpu").mockResolvedValue(access);
    expect(await gpuInfo()).toMatch(/^the GPU ".+" cannot be opened \(.*was lost.*\)$/);
  });
});
