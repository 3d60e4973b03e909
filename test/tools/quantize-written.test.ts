// What a quantization says of itself: every type that it writes is named with its tensors and, where it is not the file's, with a
// reason; and a file without any tensor of its type is announced before it is written.

import { describe, expect, test } from "vitest";
import { quantize } from "../../src/index.ts";
import { fileTypeNamed, fileTypes } from "../../src/tools/quantize/file-types.ts";
import { planTensors } from "../../src/tools/quantize/plan.ts";
import { planWarnings, writtenTypes } from "../../src/tools/quantize/written.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { planFile, planShapes } from "./quantize-model.ts";

describe.each(Object.keys(planShapes))("%s", (shape) => {
  test.each(fileTypes.map(({ name }) => name))("%s: no type without a reason", (name) => {
    const type = fileTypeNamed(name);
    const options = { pure: false, leaveOutput: false, allowRequantize: false };
    const plan = planTensors(planFile(planShapes[shape as keyof typeof planShapes]!), {
      ...{ type, patterns: [], hasImportance: true },
      ...options,
    });
    const written = writtenTypes(plan, type);
    expect(written.reduce((sum, { tensors }) => sum + tensors, 0)).toBe(plan.length);
    const bytes = plan.reduce((sum, { targetBytes }) => sum + targetBytes, 0);
    expect(written.reduce((sum, one) => sum + one.bytes, 0)).toBe(bytes);
    for (const { type: dtype, reason } of written) {
      expect(reason === undefined, dtype).toBe(dtype === type.base);
    }
    const isThere = written.some(({ type: dtype }) => dtype === type.base);
    const isFloat = ["f32", "f16", "bf16"].includes(type.base);
    expect(planWarnings(plan, type)).toHaveLength(isThere || isFloat ? 0 : 1);
  });
});

async function quantized(feedForward: number, type: string, pure = false) {
  const file = new File([Uint8Array.from(await tinyGguf({ feedForward }))], "tiny.gguf");
  const said: string[] = [];
  let isBegun = false;
  const sink = {
    write: async () => {
      isBegun = true;
    },
  };
  const onWarning = (warning: string) => {
    expect(isBegun).toBe(false);
    said.push(warning);
  };
  const result = await quantize(file, sink, type, { threads: 1, pure, onWarning });
  expect(result.warnings).toEqual(said);
  return result;
}

test("MXFP4_MOE of a dense model: nothing becomes MXFP4, and it is said before", async () => {
  const { warnings, types } = await quantized(64, "MXFP4_MOE");
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toMatch(/no tensor becomes mxfp4.*become q8_0.*no experts\. --pure/);
  expect(types.map(({ type }) => type)).toEqual(["q8_0", "f32"]);
  const pure = await quantized(64, "MXFP4_MOE", true);
  expect(pure.warnings).toEqual([]);
  expect(pure.types[0]).toMatchObject({ type: "mxfp4" });
});

test("rows that are no whole blocks: the fallback, its reason, and where none is left", async () => {
  const { warnings, types } = await quantized(256, "Q4_K_S");
  expect(warnings).toEqual([]);
  const fallen = types.filter(({ reason }) => reason?.startsWith("its rows of 32 values"));
  expect(fallen.map(({ type }) => type)).toEqual(["q5_0", "q5_1"]); // for q4_k and q5_k
  const all = await quantized(64, "Q4_K_S");
  expect(all.warnings[0]).toMatch(/no tensor becomes q4_k.*because its rows of/);
});
