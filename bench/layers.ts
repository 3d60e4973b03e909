// What a dispatch for each layer of a token gains (src/backends/webgpu/layers.ts), and that it computes the same bits: without and with
// it, in turns, over the same weights. 132x512: 132 workgroups of 512 lanes.
//
//   npm run bench:layers -- MODEL.gguf ... [--groups 132,176,132x512] [--tokens 2000] [--context 16] [--turns 3]
//
// Batches of the backend, without an engine around them. With an engine: bench:flight with LANTERN_LAYER_GROUPS=132 and without.

import { basename } from "node:path";
import { parseArgs } from "node:util";
import { GpuDevice } from "../src/backends/webgpu/device.ts";
import { type LayerDispatch, tuningFor, USUAL_POLLS } from "../src/backends/webgpu/tuning.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { loadGpuModel, median } from "./gpu-model.ts";

const { values: flags, positionals: paths } = parseArgs({
  allowPositionals: true,
  options: {
    groups: { type: "string", default: "132" },
    tokens: { type: "string", default: "2000" },
    context: { type: "string", default: "16" },
    turns: { type: "string", default: "3" },
  },
});
if (paths.length === 0) throw new Error("bench:layers: expected the paths of models");
const [tokens, context, turns] = [flags.tokens, flags.context, flags.turns].map(Number);
const ways = [undefined, ...flags.groups.split(",").map(dispatchOf)];

function dispatchOf(text: string): LayerDispatch {
  const [groups, lanes] = text.split("x").map(Number);
  return { groups: groups!, lanes, polls: USUAL_POLLS };
}

for (const path of paths) {
  const gpu = await GpuDevice.open(await nodePlatform.gpu());
  const usual = tuningFor(gpu.facts);
  const model = await loadGpuModel(path, gpu, context! + tokens!, usual);
  console.log(
    `${basename(path)} on ${gpu.facts.name}, ${gpu.facts.storageBuffers} storage buffers`,
  );
  /** What the first run gave: a token and the bits of its logit, and so on. */
  let wanted: number[] | undefined;
  for (let turn = 0; turn < turns!; turn++) {
    for (const layerDispatch of ways) {
      const { groups = 0, lanes } = layerDispatch ?? {};
      await model.retune({ ...usual, layerDispatch });
      const gpuMs = await model.gpuTime(context!);
      const got: number[] = [];
      const times = await model.generate(context!, tokens!, (token, logit) => {
        got.push(token, logit);
      });
      wanted ??= got;
      const wrong = got.findIndex((value, i) => !Object.is(value, wanted![i]));
      const dispatches = model.backend.explain().filter((line) => line.includes("layer of"));
      const perSecond = (1000 * times.length) / times.reduce((a, b) => a + b, 0);
      console.log(
        [
          groups > 0
            ? `${groups} workgroups${lanes ? ` of ${lanes} lanes` : ""}, ${dispatches.length} layer kernels`
            : "apart",
          `GPU ${gpuMs.toFixed(3)} ms`,
          `${perSecond.toFixed(0)} tokens/s (median ${(1000 / median(times)).toFixed(0)})`,
          wrong < 0 ? `${tokens} tokens, same bits` : `WRONG from token ${wrong >> 1} on`,
          groups > 0 && dispatches.length === 0 ? "GAVE UP, or could not be merged" : "",
        ]
          .filter((text) => text !== "")
          .join("; "),
      );
    }
  }
  model.backend.dispose();
}
