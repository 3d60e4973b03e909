// Loads a draft model beside a model that is loaded already, on the same thread: another engine, with the model's options unless
// others were asked for. Its memory counts beside the memory that the model may still fill.

import { LanternError } from "../base/errors.ts";
import type { Engine } from "../engine/engine.ts";
import type { DraftRequest, OpenRequest } from "../engine/protocol.ts";
import { DraftModel } from "../engine/speculate/draft-model.ts";
import { openModelFile } from "../formats/open-model-file.ts";
import type { Platform } from "../platform/platform.ts";

/** A draft model up to this size computes on one thread: barriers would take longer than its matmuls. */
const SMALL_BYTES = 8e6;

/** `load` loads a model; `reservedBytes` are not available to it, though they are not in use yet. */
export async function loadDraft(
  target: Engine,
  request: OpenRequest,
  draft: DraftRequest,
  platform: Pick<Platform, "openModelSource">,
  load: (request: OpenRequest, reservedBytes: number) => Promise<Engine>,
): Promise<DraftModel> {
  const { info } = target;
  const isOnGpu = info.backend.placement.some(({ isDevice }) => isDevice);
  let engine: Engine | undefined;
  try {
    engine = await load(
      {
        ...request,
        spec: draft.spec,
        draft: undefined,
        contextSize: info.contextSize,
        threads: draft.threads ?? (await defaultThreads(draft, request, platform)),
        gpuLayers: draft.gpuLayers ?? (isOnGpu ? "all" : undefined),
        gpuFor: undefined,
        backend: isOnGpu && draft.gpuLayers === undefined ? request.backend : undefined,
        chatTemplate: undefined,
        profile: false,
        mtp: false,
        exact: request.exact ?? false, // its bits change no text
        // Predictors belong to one model.
        sparse: request.sparse === "predict" ? "auto" : request.sparse,
        predictors: undefined,
        overrideKv: undefined,
        overrideTensors: undefined,
        cpuExperts: undefined,
        expertSlots: undefined,
        hotNeurons: undefined,
        opOffload: false,
        cacheRamBytes: 0,
        cacheDiskBytes: 0,
        cores: undefined,
      },
      info.stateBytes,
    );
    return new DraftModel(target, engine);
  } catch (error) {
    engine?.dispose();
    await engine?.ended();
    if (error instanceof LanternError) error.message = `draft model: ${error.message}`;
    throw error;
  }
}

async function defaultThreads(
  { spec }: DraftRequest,
  { threads }: OpenRequest,
  platform: Pick<Platform, "openModelSource">,
): Promise<number | undefined> {
  const file = await openModelFile(await platform.openModelSource(spec));
  try {
    const bytes = [...file.tensors.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
    return bytes <= SMALL_BYTES ? 1 : threads;
  } finally {
    await file.close();
  }
}
