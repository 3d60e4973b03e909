// Opens the predictors of a model (docs/use/sparse.md): a file beside it, or tensors of its own.

import type { Backend } from "../backends/backend.ts";
import { ModelError, UsageError } from "../base/errors.ts";
import { type PredictorPart, predictorTensor } from "../engine/engine-parts.ts";
import { hasPredictors } from "../engine/open-predictors.ts";
import type { OpenRequest } from "../engine/protocol.ts";
import { weightsFingerprint } from "../formats/fingerprint.ts";
import type { ModelFile } from "../formats/model-file.ts";
import { openModelFile } from "../formats/open-model-file.ts";
import { currentPlatform } from "../platform/current.ts";
import { withTensorsOf } from "./open-adapters.ts";

interface OpenedPredictors {
  /** undefined: no neurons are predicted. */
  readonly part: PredictorPart | undefined;
  /** The addition to the name of the weights: state of a model with other predictors is not its own. */
  readonly fingerprint: string;
  /** The model's file with their tensors. */
  with(model: ModelFile): ModelFile;
  /** `weights` names the model's weights. */
  warnings(weights: () => Promise<string>): Promise<string[]>;
  close(): Promise<void>;
}

/** Samples of a file that name its weights. */
const SAMPLES = 100;

/** The weights of the model that a file was made for. */
const FITTED_FOR = "predictor.weights";

export const NO_PREDICTORS: OpenedPredictors = {
  part: undefined,
  fingerprint: "",
  with: (file) => file,
  warnings: async () => [],
  close: async () => {},
};

export async function openPredictors(
  { sparse, predictors, spec }: OpenRequest,
  model: ModelFile,
): Promise<OpenedPredictors> {
  if (sparse !== "predict") return NO_PREDICTORS;
  if (predictors === undefined) {
    if (hasPredictors(model)) {
      return { ...NO_PREDICTORS, part: "model", fingerprint: " predicted" };
    }
    throw new UsageError(
      `predictors: ${model.name} has none (blk.N.fc1.weight, blk.N.fc2.weight). Make a file of them ("lantern sparsify"), and name it (--predictors)`,
    );
  }
  const platform = await currentPlatform();
  const file = await openModelFile(await platform.openModelSource(predictors));
  try {
    const { name, metadata, tensors } = file;
    const fingerprint = ` predicted ${await weightsFingerprint(file, SAMPLES)}`;
    return {
      part: { name, metadata, tensors },
      fingerprint,
      with: (own) => withTensorsOf(own, [{ file, nameOf: predictorTensor }]),
      warnings: async (weights) => {
        const fitted = metadata.string(FITTED_FOR);
        // A model behind a URL gets fewer samples.
        const isKnown = fitted !== undefined && spec.kind !== "url";
        if (!isKnown || fitted === (await weights())) return [];
        return [
          `predictors ${name}: they were fitted for other weights of these shapes. "lantern perplexity --sparse predict" measures what that costs`,
        ];
      },
      close: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Throws if predictors would change the text while no neurons could be left out. */
export function checkPredicted({ adapters }: OpenRequest, usesGpu: boolean): void {
  if (usesGpu) {
    throw new UsageError(
      "predictors: layers are on a GPU, which computes all neurons. Put none there (-ngl 0), or leave out the predictors",
    );
  }
  if (adapters?.length) {
    throw new UsageError("predictors: adapters read all neurons. Leave out one of the two");
  }
}

/** The same, once the backend knows the model. */
export function checkLeftOut(backend: Backend): void {
  if (backend.neurons?.()) return;
  throw new ModelError(
    "predictors: none of the model's neurons can be left out: their type has no neuron rows or columns, or weights stay on disk, or the level is below 3 (docs/use/sparse.md). Quantize the model to Q4_0 or Q8_0, or leave out `predictors`",
  );
}
