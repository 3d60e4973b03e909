// What tokens submitted ahead gain through the engine, and that texts are the same: answers of one user and of several, greedy and drawn, with
// and without penalties.
//
//   npm run bench:lookahead -- MODEL.gguf [--tokens 300] [--users 1,8]
//
// Run it with LANTERN_LOOKAHEAD=0 and without, in turns (or with LANTERN_LAYER_GROUPS=132 and without); the digests of the texts must
// be the same. Nothing is drafted.

import { createHash } from "node:crypto";
import { open } from "../src/index.ts";
import { answer, bench, count, counts, sum, timed } from "./harness.ts";

const settings = {
  greedy: { temperature: 0 },
  drawn: { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05, seed: 1 },
  "greedy with penalties": { temperature: 0, repeatPenalty: 1.1 },
  "drawn with penalties": { temperature: 0.8, topK: 40, seed: 1, repeatPenalty: 1.1 },
};

const flags = { tokens: count(300), users: counts([1, 8]) };
await bench("npm run bench:lookahead --", "MODEL.gguf", flags, async (given, [path]) => {
  const sizes = { contextSize: given.tokens + 64, parallel: Math.max(...given.users) };
  await using model = await open(path!, { backend: "webgpu", ...sizes });
  for (const [name, sampling] of Object.entries(settings)) {
    for (const users of given.users) {
      const ask = async (maxTokens: number) => {
        const options = { ...sampling, maxTokens, cachePrompt: false };
        const stories = Array.from({ length: users }, (_, i) => `Story number ${i} begins`);
        return await Promise.all(stories.map((story) => answer(model, story, options)));
      };
      await ask(16); // shaders and caches are warm
      const { result: all, ms } = await timed(() => ask(given.tokens));
      const made = sum(all.map(({ timings }) => timings.generatedTokens));
      const digest = createHash("sha256");
      for (const { tokenIds } of all) digest.update(tokenIds.join());
      console.log(
        `${name}, ${users} users: ${((made * 1000) / ms).toFixed(0)} tokens/s of all, ${all[0]!.generatedPerSecond.toFixed(0)} of the first after its prompt; texts ${digest.digest("hex").slice(0, 12)}`,
      );
    }
  }
  const { lookahead } = await model.status();
  if (lookahead)
    console.log(`${lookahead.submitted} batches submitted ahead, ${lookahead.dropped} in vain`);
});
