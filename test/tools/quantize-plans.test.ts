// Which tensor gets which type: the plans of every file type against llama.cpp's, for models that mixes treat differently (many
// layers, shared heads, experts), with and without an importance matrix; and which plans are refused without one.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { fileTypeNamed, fileTypes } from "../../src/tools/quantize/file-types.ts";
import { lackImportance, type PlannedTensor, planTensors } from "../../src/tools/quantize/plan.ts";
import { deep, planFile, planShapes } from "./quantize-model.ts";

const { plans } = JSON.parse(
  readFileSync(new URL("data/quantize-plans.json", import.meta.url), "utf8"),
) as { plans: Record<string, Record<string, string>> };

function planOf(shape: keyof typeof planShapes, type: string, hasImportance: boolean) {
  return planTensors(planFile(planShapes[shape]!), {
    type: fileTypeNamed(type),
    patterns: [],
    pure: false,
    leaveOutput: false,
    allowRequantize: false,
    hasImportance,
  });
}

/** As the golden file has it: "5 q6_k, q4_k" says how many tensors of a role in a row have a type. */
function described(plan: readonly PlannedTensor[]): string {
  const roles = new Map<string, string[]>();
  for (const { tensor, target } of plan) {
    const [, role] = /^(?:blk\.\d+\.)?(.*)\.weight$/.exec(tensor.name)!;
    roles.set(role!, [...(roles.get(role!) ?? []), target.name]);
  }
  const all = [...roles.values()].flat();
  const count = (type: string) => all.filter((each) => each === type).length;
  const most = [...new Set(all)].sort().reduce((a, b) => (count(b) > count(a) ? b : a));
  const parts = [...roles]
    .filter(([, types]) => types.some((type) => type !== most))
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([role, types]) => `${role}: ${runs(types)}`);
  return [...parts, `rest: ${most}`].join("; ");
}

function runs(types: readonly string[]): string {
  const result: { type: string; count: number }[] = [];
  for (const type of types) {
    if (result.at(-1)?.type === type) result.at(-1)!.count++;
    else result.push({ type, count: 1 });
  }
  return result.map(({ type, count }) => (count > 1 ? `${count} ${type}` : type)).join(", ");
}

describe.each(Object.keys(planShapes))("%s", (shape) => {
  test.each(fileTypes.map(({ name }) => name))("%s has llama.cpp's types", (type) => {
    expect(described(planOf(shape, type, false))).toBe(plans[shape]![type]);
    expect(described(planOf(shape, type, true))).toBe(plans[`${shape}, importance`]![type]);
  });
});

describe("an importance matrix", () => {
  const importanceOf = (known: (name: string) => boolean) => ({
    of: ({ name }: { name: string }) => (known(name) ? new Float32Array(256).fill(1) : undefined),
    entries: [],
    names: [],
  });
  const lacking = (type: string, known?: (name: string) => boolean) =>
    lackImportance(
      planOf("20 layers", type, known !== undefined),
      fileTypeNamed(type),
      known && importanceOf(known),
    ).map(({ tensor }) => tensor.name);

  test("is needed by the types that llama.cpp refuses without one", () => {
    const refused = fileTypes.map(({ name }) => name).filter((type) => lacking(type).length > 0);
    expect(refused.sort()).toEqual(
      [
        "IQ1_M",
        "IQ1_S",
        "IQ2_M",
        "IQ2_S",
        "IQ2_XS",
        "IQ2_XXS",
        "IQ3_XS",
        "IQ3_XXS",
        "Q2_K_S",
      ].sort(),
    );
  });

  test("must know every matrix of the layers, and neither embedding nor output", () => {
    expect(lacking("IQ2_M", (name) => name.startsWith("blk."))).toEqual([]);
    const but = "blk.3.ffn_up.weight";
    expect(lacking("IQ2_M", (name) => name.startsWith("blk.") && name !== but)).toEqual([but]);
  });

  test("is not needed where rows are too short for the type", () => {
    const file = planFile({ ...deep, embed: 96, feedForward: 96 });
    const type = fileTypeNamed("IQ2_XXS");
    const rest = { patterns: [], pure: false, leaveOutput: false, allowRequantize: false };
    const plan = planTensors(file, { ...rest, type, hasImportance: false });
    expect(new Set(plan.map(({ target }) => target.name))).toEqual(
      new Set(["q8_0", "q5_0", "q4_0", "iq4_nl"]),
    );
    expect(lackImportance(plan, type, undefined)).toEqual([]);
  });
});
