// State on its way out of a backend and into another: what is written is read again, byte for byte, from every backend that keeps
// it. (switch-gpu.test.ts has the GPU.)

import { describe, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { SplitBackend } from "../../src/backends/split/split.ts";
import { kvTypes } from "../../src/dtypes/kv-types.ts";
import { expectRoundTrip } from "./round-trip.ts";

const cpu = () => new CpuBackend({ level: 3, threads: 1, startThread: undefined });
const hosts: { name: string; make: () => Backend }[] = [
  { name: "reference", make: () => new ReferenceBackend() },
  { name: "cpu", make: cpu },
  {
    name: "cpu+reference",
    make: () => new SplitBackend({ host: cpu(), device: new ReferenceBackend(), layers: 3 }),
  },
];

describe.each(hosts)("$name", ({ make }) => {
  test.each([...kvTypes, "q8_0/q4_0", "q5_1/f16"])(
    "what is written is read again: %s",
    async (type) => {
      await expectRoundTrip(make(), type);
    },
  );
});
