// What tokens in flight gain through the engine, and that texts are the same: answers of one user and of several, greedy and drawn, with
// and without penalties.
//
//   npm run bench:flight -- MODEL.gguf [--tokens 300] [--users 1,8]
//
// Run it with LANTERN_FLIGHT=0 and without, in turns (or with LANTERN_LAYER_GROUPS=132 and without); the digests of the texts must
// be the same. Nothing is drafted.

import { createHash } from "node:crypto";
import { parseArgs } from "node:util";
import { open } from "../src/index.ts";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    tokens: { type: "string", default: "300" },
    users: { type: "string", default: "1,8" },
  },
});
const [path] = positionals;
if (path === undefined) throw new Error("bench:flight: expected the path of a model");
const maxTokens = Number(flags.tokens);
const counts = flags.users.split(",").map(Number);

const model = await open(path, {
  backend: "webgpu",
  contextSize: maxTokens + 64,
  parallel: Math.max(...counts),
  speculate: false,
});
try {
  const settings = {
    greedy: { temperature: 0 },
    drawn: { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05, seed: 1 },
    "greedy with penalties": { temperature: 0, repeatPenalty: 1.1 },
    "drawn with penalties": { temperature: 0.8, topK: 40, seed: 1, repeatPenalty: 1.1 },
  };
  for (const [name, sampling] of Object.entries(settings)) {
    for (const users of counts) {
      const ask = async (tokens: number) =>
        await Promise.all(
          Array.from({ length: users }, async (_, user) => {
            const options = { ...sampling, maxTokens: tokens, ignoreEos: true, cachePrompt: false };
            return await model.generate(`Story number ${user} begins`, options).result;
          }),
        );
      await ask(16); // shaders and caches are warm
      const since = performance.now();
      const all = await ask(maxTokens);
      const ms = performance.now() - since;
      const made = all.reduce((sum, { timings }) => sum + timings.generatedTokens, 0);
      const alone = all.map(
        ({ timings }) => (1000 * timings.generatedTokens) / timings.generatedMs,
      );
      const digest = createHash("sha256");
      for (const { tokenIds } of all) digest.update(tokenIds.join());
      console.log(
        `${name}, ${users} users: ${((made * 1000) / ms).toFixed(0)} tokens/s of all, ${alone[0]!.toFixed(0)} of the first after its prompt; texts ${digest.digest("hex").slice(0, 12)}`,
      );
    }
  }
  const { flight } = await model.status();
  if (flight) console.log(`${flight.submitted} batches in flight, ${flight.dropped} in vain`);
} finally {
  await model.dispose();
}
