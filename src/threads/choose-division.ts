// Makes the measurements that decide the division of a model between the processor and a GPU, if the request leaves it open: with the
// bits of the processor (../tune/exact-choice.ts), by layers or by neurons (../tune/hot-choice.ts).

import { findGpu, gpuIdentity } from "../backends/webgpu/device.ts";
import type { OpenRequest } from "../engine/protocol.ts";
import type { ModelFile } from "../formats/model-file.ts";
import { openModelFile } from "../formats/open-model-file.ts";
import type { Platform } from "../platform/platform.ts";
import { ExactChoice } from "../tune/exact-choice.ts";
import { HotChoice } from "../tune/hot-choice.ts";

/** undefined: the request decides it, or all layers are on one side. A model over HTTP is not loaded twice. */
export async function exactChoice(
  request: OpenRequest,
  platform: Platform,
): Promise<ExactChoice | undefined> {
  const { spec, opOffload, exact, hotNeurons, profile } = request;
  // Exact kernels have no op offload.
  const isOpen = exact === undefined && !opOffload && !hotNeurons && !profile;
  if (!isOpen || !isByLayers(request, platform)) return undefined;
  const gpu = await gpuName(platform);
  if (gpu === undefined) return undefined;
  const file = await openModelFile(await platform.openModelSource(spec));
  try {
    const key = [gpu, ...divisionKey(request, platform), ...familyOf(file)].join(", ");
    return new ExactChoice({ files: platform.smallFiles(), now: platform.now, key });
  } finally {
    await file.close();
  }
}

/** undefined: the request decides it, or all layers are on one side. */
export async function hotChoice(
  request: OpenRequest,
  platform: Platform,
): Promise<HotChoice | undefined> {
  const { exact, opOffload, hotNeurons, sparse, contextSize } = request;
  const isOpen = hotNeurons === undefined && sparse === "auto" && !exact && !opOffload;
  if (!isOpen || !isByLayers(request, platform)) return undefined;
  const gpu = await gpuName(platform);
  if (gpu === undefined) return undefined;
  const key = [gpu, ...divisionKey(request, platform), contextSize ?? "its context"].join(", ");
  return new HotChoice({ files: platform.smallFiles(), now: platform.now, key });
}

/** The GPU that layers would be on; undefined: there is none. */
export async function gpuName(platform: Platform): Promise<string | undefined> {
  const found = await findGpu(await platform.gpu());
  return typeof found === "string" ? undefined : gpuIdentity(found);
}

/** Whether a model of local files has some layers on each side, no tensor apart from its layer, and may be measured. */
function isByLayers(request: OpenRequest, platform: Platform): boolean {
  const { gpuLayers, spec, tuned } = request;
  const isPartial = gpuLayers === "auto" || (typeof gpuLayers === "number" && gpuLayers > 0);
  const { gpuFor, overrideTensors, cpuExperts, expertSlots } = request;
  const others = [gpuFor, overrideTensors, cpuExperts, expertSlots];
  const isPlain = others.every((other) => other === undefined) && !request.adapters?.length;
  return isPartial && isPlain && tuned && !platform.env("LANTERN_NO_TUNE") && spec.kind !== "url";
}

/** The facts that its times depend on, beside the GPU and the model. */
function divisionKey(request: OpenRequest, platform: Platform): unknown[] {
  const { threads, level, gpuLayers, mostGpuLayers, kvType, weights, opOffload } = request;
  const machine = [platform.cpu(), threads, level];
  return [...machine, gpuLayers, mostGpuLayers, kvType, weights, opOffload ?? "measured"];
}

/** The properties that models of equal speed share: the architecture, and the matrices of a layer. */
function familyOf({ metadata, tensors }: ModelFile): string[] {
  const shapes = new Map<string, number>();
  for (const { shape, dtype } of tensors.values()) {
    if (shape.length < 2) continue;
    const text = `${dtype.name} ${shape.join("x")}`;
    shapes.set(text, (shapes.get(text) ?? 0) + 1);
  }
  const matrices = [...shapes].map(([text, count]) => `${count} ${text}`).join(" ");
  return [metadata.string("general.architecture") ?? "", matrices];
}
