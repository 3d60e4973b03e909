// Whether a GPU that nobody demanded is used: a real one is, one that the processor plays is not, and none is no error.
// Adapters are made up; the machine's own GPU is not prefetched.

import { describe, expect, test } from "vitest";
import { openOptions } from "../../apps/cli/flags.ts";
import { gpuInfo, open } from "../../src/index.ts";
import { chooseGpuLayers } from "../../src/load/gpu-choice.ts";
import { nodeNoGpu } from "../../src/platform/node-no-gpu.ts";
import type { GpuAccess } from "../../src/platform/platform.ts";
import { tinyGguf } from "../support/tiny-file.ts";

function adapter(description: string, isFallbackAdapter: boolean): GPUAdapter {
  const info = { vendor: "made up", architecture: "", device: "", description, isFallbackAdapter };
  return { info, limits: {}, features: new Set() } as unknown as GPUAdapter;
}

function access(found: GPUAdapter | null, softwareOnly = false): GpuAccess {
  return { gpu: { requestAdapter: async () => found } as unknown as GPU, softwareOnly };
}

/** A platform where looking for a GPU is counted: it loads a package. */
function platform(gpu: GpuAccess, absent?: string) {
  const seen = { loads: 0 };
  const asked = async () => {
    seen.loads++;
    return gpu;
  };
  return { seen, gpu: asked, noGpu: () => absent };
}

const nothing = { notes: [], warnings: [], hints: [] };
const choice = { backend: undefined, gpuLayers: "auto" } as const;
const missing = 'in Node a GPU needs the npm package "webgpu", which is not installed';

describe("auto", () => {
  test("takes a real GPU", async () => {
    const here = platform(access(adapter("Real 9000", false)));
    expect(await chooseGpuLayers(choice, here)).toEqual({ ...nothing, gpuLayers: "auto" });
  });

  test("does not take one that the processor plays, unless it is wished for", async () => {
    const software = adapter("SwiftShader", true);
    const found = await chooseGpuLayers(choice, platform(access(software)));
    expect(found).toMatchObject({ gpuLayers: 0, warnings: [], hints: [] });
    expect(found.notes[0]).toContain('"SwiftShader" runs on the CPU');
    const wished = await chooseGpuLayers(choice, platform(access(software, true)));
    expect(wished.gpuLayers).toBe("auto");
  });

  test("loads nothing where no GPU can be", async () => {
    const here = platform(access(adapter("Real 9000", false)), "this machine has none");
    const found = await chooseGpuLayers(choice, here);
    expect(found.gpuLayers).toBe(0);
    expect(found.notes).toEqual(["no layers on a GPU: this machine has none"]);
    expect(here.seen.loads).toBe(0);
  });

  test("offers the package where it is missing and a GPU is not", async () => {
    const found = await chooseGpuLayers(choice, platform(missing));
    expect(found).toMatchObject({ gpuLayers: 0, warnings: [] });
    expect(found.hints).toEqual([`this machine has a GPU that is not used: ${missing}`]);
  });
});

test.each([
  ["no package", missing],
  ["no adapter", access(null)],
])("a number of layers with %s is a warning, and the processor goes on", async (_, gpu) => {
  for (const gpuLayers of [99, "all"] as const) {
    const found = await chooseGpuLayers({ backend: undefined, gpuLayers }, platform(gpu));
    expect(found.gpuLayers).toBe(0);
    expect(found.warnings[0]).toMatch(
      new RegExp(`^gpuLayers: got ${gpuLayers}, but no GPU can be used .* the processor computes`),
    );
  }
});

test("what is demanded stays demanded, and the processor is not asked about a GPU", async () => {
  const here = platform(missing, "this machine has none");
  for (const asked of [
    { backend: "webgpu", gpuLayers: undefined },
    { backend: "webgpu", gpuLayers: 3 },
    { backend: undefined, gpuLayers: undefined, gpuFor: "prompt" },
    { backend: "cpu", gpuLayers: undefined },
    { backend: undefined, gpuLayers: 0 },
  ] as const) {
    const { gpuLayers } = asked;
    expect(await chooseGpuLayers(asked, here)).toEqual({ ...nothing, gpuLayers });
  }
  expect(here.seen.loads).toBe(0);
});

test("a machine without device files has no GPU; elsewhere than on Linux one may be anywhere", () => {
  const list = (files: Record<string, string[]>) => (folder: string) => {
    if (files[folder]) return files[folder];
    throw new Error("ENOENT");
  };
  const here = (files: Record<string, string[]>, env = {}, system = "linux") =>
    nodeNoGpu(env, system, list(files));
  expect(here({ "/dev": ["null", "tty"] })).toContain("neither /dev/dri/renderD*");
  expect(here({})).toContain("neither");
  expect(here({ "/dev/dri": ["card0"] })).toContain("neither"); // only a display
  expect(here({ "/dev/dri": ["card0", "renderD128"] })).toBeUndefined();
  expect(here({ "/dev": ["nvidia0", "nvidiactl"] })).toBeUndefined();
  expect(here({}, {}, "darwin")).toBeUndefined();
  expect(here({}, { LANTERN_GPU: "software" })).toBeUndefined();
  expect(here({ "/dev": ["nvidia0"] }, { LANTERN_GPU: "off" })).toContain("LANTERN_GPU=off");
});

test("on the command line auto is the default of what answers, unless a flag is for the processor", () => {
  const flags = { usesGpu: true } as const;
  expect(openOptions(flags).gpuLayers).toBe("auto");
  expect(openOptions({ ...flags, gpuLayers: 0 }).gpuLayers).toBe(0);
  expect(openOptions({}).gpuLayers).toBeUndefined(); // commands that measure
  for (const more of [
    ...[{ backend: "cpu" }, { level: 3 as const }, { native: false }, { ram: 1e9 }],
    ...[{ exact: true }, { sparse: "on" as const }, { cpuMask: "3" }, { cpuMoe: true as const }],
    ...[{ gpuFor: "prompt" as const }, { tuneFile: "t.txt" }],
  ]) {
    expect(openOptions({ ...flags, ...more }).gpuLayers, JSON.stringify(more)).toBeUndefined();
  }
});

test("tensors and neurons that were to be on a GPU are a warning where there is none", async ({
  skip,
}) => {
  const found = await gpuInfo();
  if (typeof found !== "string") skip(`there is one: ${found.name}`);
  const bytes = new Uint8Array(await tinyGguf());
  const options = { threads: 1, overrideTensors: ["ffn=gpu", "attn=cpu"], hotNeurons: 0.4 };
  await using model = await open(new File([bytes], "tiny.gguf"), options);
  expect(model.info.warnings).toEqual([
    expect.stringMatching(
      /^ffn=gpu: no GPU can be used \(.*\), so the processor computes that, too$/,
    ),
    expect.stringMatching(/^hotNeurons 0.4: no GPU can be used /),
  ]);
});
