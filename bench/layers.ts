// What a dispatch for each layer of a token gains (src/backends/webgpu/layers.ts), and that it computes the same bits: without and with
// it, in turns, over the same weights. 132x512: 132 workgroups of 512 lanes.
//
//   npm run bench:layers -- MODEL.gguf ... [--groups 132,176,132x512] [--tokens 2000] [--context 16] [--turns 3]
//
// Batches of the backend, without an engine around them. With an engine: bench:lookahead with LANTERN_LAYER_GROUPS=132 and without.

import { basename } from "node:path";
import { GpuDevice } from "../src/backends/webgpu/device.ts";
import { type LayerDispatch, tuningFor, USUAL_POLLS } from "../src/backends/webgpu/tuning.ts";
import { measure, median } from "../src/base/measure.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { loadGpuModel } from "./gpu-model.ts";
import { bench, count, sum, texts } from "./harness.ts";

const flags = {
  groups: texts(["132"]),
  tokens: count(2000),
  context: count(16),
  turns: count(3),
};

function dispatchOf(text: string): LayerDispatch {
  const [groups, lanes] = text.split("x").map(Number);
  return { groups: groups!, lanes, polls: USUAL_POLLS };
}

await bench("npm run bench:layers --", "MODEL.gguf ...", flags, async (given, paths) => {
  const { tokens, context, turns } = given;
  for (const path of paths) {
    const gpu = await GpuDevice.open(await nodePlatform.gpu());
    const usual = tuningFor(gpu.facts);
    const model = await loadGpuModel(path, gpu, context + tokens, { tuning: usual });
    const { name, storageBuffers } = gpu.facts;
    console.log(`${basename(path)} on ${name}, ${storageBuffers} storage buffers`);
    /** What the first run gave: a token and the bits of its logit, and so on. */
    let wanted: number[] | undefined;
    const run = async (layerDispatch: LayerDispatch | undefined): Promise<void> => {
      const { groups = 0, lanes } = layerDispatch ?? {};
      await model.retune({ ...usual, layerDispatch });
      const gpuMs = await model.gpuTime(context);
      const got: number[] = [];
      const times = await model.generate(context, tokens, (token, logit) => {
        got.push(token, logit);
      });
      wanted ??= got;
      const wrong = got.findIndex((value, i) => !Object.is(value, wanted![i]));
      const dispatches = model.backend.explain().filter((line) => line.includes("layer of"));
      const perSecond = (1000 * times.length) / sum(times);
      const facts = [
        groups > 0
          ? `${groups} workgroups${lanes ? ` of ${lanes} lanes` : ""}, ${dispatches.length} layer kernels`
          : "apart",
        `GPU ${gpuMs.toFixed(3)} ms`,
        `${perSecond.toFixed(0)} tokens/s (median ${(1000 / median(times)).toFixed(0)})`,
        wrong < 0 ? `${tokens} tokens, same bits` : `WRONG from token ${wrong >> 1} on`,
        groups > 0 && dispatches.length === 0 ? "GAVE UP, or could not be merged" : "",
      ];
      console.log(facts.filter((text) => text !== "").join("; "));
    };
    await measure({
      contestants: [undefined, ...given.groups.map(dispatchOf)],
      rounds: turns,
      run,
    });
    model.backend.dispose();
  }
});
