// What the check of subgroups (subgroup-probe.ts) makes of the words that its kernel counts. Dawn's null device compiles the kernel and
// runs nothing, so the words are given here; webgpu-subgroups.test.ts has real ones.

import { expect, test } from "vitest";
import { GpuDevice } from "../../src/backends/webgpu/device.ts";
import { claimingAccess } from "../support/claiming-gpu.ts";
import { nullAccess } from "../support/null-gpu.ts";

const MAPPED = 0x0001;
const access = await nullAccess();
const lacks = typeof access === "string" ? ` [skipped: ${access}]` : "";

/** The facts of a device that says 32 lanes and whose kernel counts these words; undefined: none. */
async function factsWith(counts?: readonly number[]): Promise<GpuDevice["facts"]> {
  const claims = claimingAccess(access, (device) => {
    if (!counts) return;
    const createBuffer = device.createBuffer.bind(device);
    device.createBuffer = (descriptor) => {
      const buffer = createBuffer(descriptor);
      if ((descriptor.usage & MAPPED) !== 0) {
        buffer.getMappedRange = () => Uint32Array.from(counts).buffer;
      }
      return buffer;
    };
  });
  const gpu = await GpuDevice.open(claims);
  gpu.check();
  gpu.dispose();
  await gpu.ended();
  return gpu.facts;
}

test.skipIf(lacks)(`a kernel that did not run has passed nothing${lacks}`, async () => {
  expect(await factsWith()).toMatchObject({
    subgroups: undefined,
    subgroupMatrix: false,
    // Whatever is in its memory, which nothing has written.
    subgroupShuffles: expect.stringMatching(/ their shuffles counted \d+ lanes instead of 1024$/),
  });
});

test.skipIf(lacks)(`all lanes ran, and no value was wrong${lacks}`, async () => {
  expect(await factsWith([1024, 0, 0, 0, 0, 0])).toMatchObject({
    subgroups: { min: 32, max: 32 },
    subgroupMatrix: true,
    subgroupShuffles: true,
  });
});

test.skipIf(lacks)(`the smallest distance with wrong values is told${lacks}`, async () => {
  expect(await factsWith([1024, 0, 0, 0, 3000, 3072])).toMatchObject({
    subgroups: undefined,
    subgroupMatrix: false,
    subgroupShuffles:
      "the device says at least 32 lanes, but 3000 of 3072 values that lanes 8 apart exchanged are wrong",
  });
});

test.skipIf(lacks)(`more lanes than there are is not right, either${lacks}`, async () => {
  const { subgroups, subgroupShuffles } = await factsWith([1025, 0, 0, 0, 0, 0]);
  expect(subgroups).toBeUndefined();
  expect(subgroupShuffles).toContain("counted 1025 lanes instead of 1024");
});
