// What times are valid for is the same in every thread and bundle, in whichever order these load the types.

import { expect, test, vi } from "vitest";
import { packedTypes } from "../../src/kernels/ops/packed/packings.ts";
import { identityOf } from "../../src/tune/identity.ts";

const machine = { cpu: "a processor", cores: 2 };

test("the order of the table of types does not count", async () => {
  const usual = identityOf(machine);
  vi.resetModules();
  vi.doMock("../../src/kernels/ops/packed/packings.ts", async (original) => ({
    ...(await original<object>()),
    packedTypes: () => [...packedTypes()].reverse(),
  }));
  const reversed = await import("../../src/tune/identity.ts");
  expect(reversed.identityOf(machine)).toEqual(usual);
  vi.doUnmock("../../src/kernels/ops/packed/packings.ts");
});
