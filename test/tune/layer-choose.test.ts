// Layers in one dispatch in a tune file, with made-up times: what is kept, refused, merged, chosen and explained.

import { describe, expect, test } from "vitest";
import type { GpuFacts } from "../../src/backends/webgpu/device.ts";
import { dispatchFor, layerBytes, layerShape } from "../../src/backends/webgpu/layer-shape.ts";
import { LAYER_REVISION, tuningFor, withLayers } from "../../src/backends/webgpu/tuning.ts";
import { FormatError } from "../../src/base/errors.ts";
import { analyzeTuneFile } from "../../src/tune/analyze.ts";
import { useGpuTuning } from "../../src/tune/gpu-choose.ts";
import { gpuTuneIdentity, gpuTuneProfiles } from "../../src/tune/gpu-profiles.ts";
import { tunedLayers } from "../../src/tune/layer-choose.ts";
import type { TunedLayers } from "../../src/tune/layer-lines.ts";
import { layerCandidates } from "../../src/tune/layer-tune.ts";
import { mergeTuneFiles } from "../../src/tune/merge.ts";
import { parseTuneFile, printTuneFile, type TuneFile } from "../../src/tune/tune-file.ts";
import { llamaGraph } from "../support/llama-graph.ts";
import { gpuFacts as facts, resealed } from "./sample.ts";

const graph = llamaGraph("q4_0", 2);
const other = llamaGraph("q8_0", 2);

const measured: TunedLayers = {
  shape: layerShape(graph),
  use: "176x256",
  bytes: layerBytes(graph),
  contexts: [16, 512],
  revision: LAYER_REVISION,
  noise: 0.004,
  dispatches: [
    { groups: 0, result: [641.2, 660.1] },
    { groups: 2, result: [700, 700.5] },
    { groups: 176, lanes: 256, result: [497, 512.3] },
    { groups: 264, lanes: 256, result: "gave-up" },
  ],
};

function fileWith(...layers: TunedLayers[]): TuneFile {
  const date = "2026-11-18T05:10:00.000Z";
  return { ...gpuTuneIdentity(facts), date, profiles: gpuTuneProfiles(), groups: [], layers };
}

/** What models of these layers are computed with. */
function chosen(file: TuneFile, model = graph, on: GpuFacts = facts, asked?: number) {
  const { tuning } = useGpuTuning(file, on);
  return dispatchFor(model, withLayers(tuning!, on, asked).layerDispatch);
}

describe("the shape of layers", () => {
  test("is the same for any number of layers, and no other's", () => {
    expect(layerShape(llamaGraph("q4_0", 5))).toBe(layerShape(graph));
    expect(layerShape(other)).not.toBe(layerShape(graph));
    expect(layerShape(llamaGraph("q4_0", 2, 2))).not.toBe(layerShape(graph));
  });
});

describe("in the file", () => {
  const bytes = Math.round(measured.bytes);
  const file = fileWith({ ...measured, bytes });
  const text = printTuneFile(file);

  test("is read as it was written", () => {
    expect(text).toMatch(
      /^layers [0-9a-f]{8} use=176x256 bytes=\d+ contexts=16,512 revision=\d+ noise=0\.004$/m,
    );
    expect(text).toMatch(/^dispatch 176x256 {2}497\.0 512\.3$/m);
    expect(text).toMatch(/^dispatch 264x256 {2}gave-up$/m);
    expect(parseTuneFile(text, "test")).toEqual(file);
  });

  test("files from before have none", () => {
    const { layers: _, ...before } = file;
    expect(parseTuneFile(printTuneFile(before), "test")).toEqual(before);
  });

  const broken: readonly [string, (text: string) => string, RegExp][] = [
    ["a shape that is none", (t) => t.replace(/^layers \w+/m, "layers ../etc"), /layers SHAPE/],
    ["nothing that is used", (t) => t.replace(" use=176x256", ""), /layers SHAPE/],
    ["a noise that is none", (t) => t.replace("noise=0.004", "noise=1e9"), /layers SHAPE/],
    ["a dispatch before its layers", (t) => t.replace(/^layers .*\n/m, ""), /layers before/],
    ["no end of workgroups", (t) => t.replace("dispatch 176x", "dispatch 99999x"), /GROUPS/],
    ["no workgroups", (t) => t.replace("dispatch 176x", "dispatch 0x"), /GROUPS/],
    ["no lanes", (t) => t.replace("dispatch 176x256", "dispatch 176x0"), /GROUPS/],
    ["times that are none", (t) => t.replace("497.0 512.3", "NaN 512.3"), /US US/],
    ["negative times", (t) => t.replace("497.0 512.3", "-1 512.3"), /US US/],
    ["one time", (t) => t.replace("497.0 512.3", "497.0"), /US US/],
    ["a reason that is none", (t) => t.replace("gave-up", "constructor"), /gave-up/],
    ["a dispatch twice", (t) => t.replace("264x256", "176x256"), /each dispatch once/],
    [
      "a shape twice",
      (t) => t + t.slice(t.indexOf("layers "), t.indexOf("end ")),
      /each shape once/,
    ],
  ];

  test.each(broken)("with %s is refused", (_, damage, message) => {
    const damaged = resealed(damage(text));
    expect(damaged).not.toBe(text);
    expect(() => parseTuneFile(damaged, "test")).toThrow(FormatError);
    expect(() => parseTuneFile(damaged, "test")).toThrow(message);
  });

  test("a shape that is measured again replaces the old one, and no other", () => {
    const [first, second] = [measured, { ...measured, shape: layerShape(other) }];
    const again = { ...measured, use: "apart" };
    const merged = mergeTuneFiles(fileWith(first, second), fileWith(again));
    expect(merged.layers).toEqual([second, again]);
    const { layers: _, ...without } = fileWith();
    expect(mergeTuneFiles(fileWith(first), without).layers).toEqual([first]);
  });
});

describe("at load", () => {
  test("models with layers of that shape have the measured dispatch", () => {
    expect(chosen(fileWith(measured))).toMatchObject({ groups: 176, lanes: 256 });
    expect(chosen(fileWith(measured), other)).toBeUndefined();
    const both = fileWith(measured, { ...measured, shape: layerShape(other), use: "2" });
    expect(chosen(both)).toMatchObject({ groups: 176 });
    expect(chosen(both, other)).toMatchObject({ groups: 2, lanes: undefined });
  });

  test("matmuls then have the shapes with which it was measured", () => {
    const usual = tuningFor(facts).shapeFor(512, 256, "q4_0");
    expect(chosen(fileWith(measured))!.shapeFor!(512, 256, "q4_0")).toEqual(usual);
    expect(chosen(fileWith({ ...measured, use: "apart" }))!.shapeFor).toBeUndefined();
  });

  test("a GPU that was measured keeps its default for other models", () => {
    const h200 = { ...facts, name: "NVIDIA H200" };
    expect(chosen(fileWith(measured), graph, h200)).toMatchObject({ lanes: 256 });
    expect(chosen(fileWith(measured), other, h200)).toMatchObject({
      groups: 176,
      mostBytes: 2 ** 26,
    });
    expect(chosen(fileWith({ ...measured, use: "apart" }), graph, h200)).toMatchObject({
      groups: 0,
    });
  });

  test("what was asked for wins", () => {
    expect(chosen(fileWith(measured), graph, facts, 0)).toBeUndefined();
    expect(chosen(fileWith(measured), graph, facts, 7)).toMatchObject({ groups: 7 });
    const own = { ...tuningFor(facts), layerDispatch: { groups: 3, polls: 1 } };
    expect(withLayers(own, { ...facts, name: "H200" }, undefined).layerDispatch?.groups).toBe(3);
  });

  test.each([
    ["times of other kernels", { revision: LAYER_REVISION + 1 }],
    ["what was not measured", { use: "99x256" }],
    ["what is out", { use: "264x256" }],
  ])("%s: not used", (_, change) => {
    expect(tunedLayers(fileWith({ ...measured, ...change }), facts)).toBeUndefined();
  });

  test("--explain has the choice, all times, and why others are out", () => {
    const [, line] = useGpuTuning(fileWith(measured), facts).notes;
    expect(line).toContain(
      `MiB (${measured.shape}): 176x256 (1 token after 16 and 512: apart 641.2`,
    );
    expect(line).toContain("264x256 is out: its workgroups could not wait for each other");
    expect(line).toContain("noise 0.4 %");
  });

  test("tune analyze has them, with the gain", () => {
    const [layers] = analyzeTuneFile(fileWith(measured)).layers;
    expect(layers).toMatchObject({ use: "176x256", shape: measured.shape });
    expect(layers!.gain).toBeCloseTo(1301.3 / 1009.3);
    expect(layers!.dispatches.at(-1)!.result).toContain("could not wait");
  });
});

describe("candidates", () => {
  test("workgroups that GPUs may run at a time, and as many as the model's matmuls make", () => {
    const names = (lanes: number, own: number) =>
      layerCandidates({ ...facts, workgroupLanes: lanes }, own).map(
        (one) => `${one.groups}x${one.lanes}`,
      );
    expect(names(256, 344)).toEqual(
      [16, 32, 48, 64, 96, 128, 132, 176, 264, 344].map((groups) => `${groups}x256`),
    );
    expect(names(256, 9999)).not.toContain("9999x256");
    expect(names(1024, 176)).toContain("132x512");
    expect(new Set(names(1024, 176)).size).toBe(names(1024, 176).length);
  });
});
