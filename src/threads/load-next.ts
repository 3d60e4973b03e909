// Loads the layer of a model's file that predicts further tokens beside the model, with a backend of its own on the processor.

import type { BackendRequest } from "../backends/table.ts";
import { backendByName } from "../backends/table.ts";
import { UsageError } from "../base/errors.ts";
import type { Engine } from "../engine/engine.ts";
import type { EngineParts } from "../engine/engine-parts.ts";
import { NextLayer, type NextLayerOptions } from "../engine/speculate/next-layer.ts";

export async function loadNext(
  engine: Engine,
  parts: EngineParts,
  request: BackendRequest,
  options: Pick<NextLayerOptions, "kvType" | "parallel" | "availableBytes">,
): Promise<void> {
  const layer = await NextLayer.load(parts, () => backendByName("cpu")!.create(request), {
    contextSize: engine.info.contextSize,
    ...options,
    rest: (isOn) => engine.rest(isOn),
  });
  if (!layer) {
    engine.dispose();
    await engine.ended();
    throw new UsageError(
      `mtp: ${parts.name} has no layer that predicts further tokens (nextn), or one that is not supported. Leave out \`mtp\``,
    );
  }
  engine.addDrafter(layer);
}
