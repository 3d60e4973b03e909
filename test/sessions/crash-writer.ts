// The process that crash.test.ts kills: it asks and answers without end, with the store and the runs of the server and a
// model that only counts. It says what it does on standard output, at once, so that nothing of it is lost with it.
//
// Usage: node crash-writer.ts FILE SEED

import { writeSync } from "node:fs";
import type { RunModel } from "../../apps/sessions/prompt.ts";
import { Runs } from "../../apps/sessions/runs.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import type { GenerationResult, TokenEvent } from "../../src/api/api.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { Random } from "../support/random.ts";

const [file, seed] = process.argv.slice(2);
const random = new Random(Number(seed));
const say = (...words: (string | number)[]): void => void writeSync(1, `${words.join(" ")}\n`);

const none = { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 };
const timings: GenerationResult["timings"] = {
  loadMs: 0,
  promptTokens: 1,
  cachedTokens: 0,
  promptMs: 1,
  generatedTokens: 1,
  generatedMs: 1,
  sampledTokens: 1,
  sampleMs: 0,
  totalMs: 2,
  work: { prompt: none, generation: none },
};

const model: RunModel = {
  name: "counting",
  contextSize: 1e9,
  trainedContext: 1e9,
  chatPrompt: async () => ({ tokens: [1] }),
  textTokens: async () => [1],
  checkCapacity: () => {},
  async generate() {
    const words = 20 + random.below(900);
    const done = Promise.withResolvers<GenerationResult>();
    async function* tokens(): AsyncGenerator<TokenEvent> {
      let text = "";
      for (let i = 0; i < words; i++) {
        await new Promise((resolve) => setTimeout(resolve, random.below(5)));
        const word = ` w${i}`;
        text += word;
        say("said", performance.now(), word.trim());
        yield { id: i, text: word };
      }
      done.resolve({ text, promptTokenIds: [], tokenIds: [], stopReason: "end", timings });
    }
    return { tokens, result: done.promise };
  },
};

const store = new SessionStore(openNodeDatabase(file!));
const runs = new Runs(store);
const session = store.sessions().sessions[0] ?? store.createSession({ title: "crash" });
for (;;) {
  const content = `question ${random.below(1e9)}`;
  const { run, user, answers } = await runs.ask(session.id, model, { content });
  say("asked", user!.id, answers[0]!.id, content);
  await run.done;
  say("done", answers[0]!.id, run.answers[0]!.text.length);
}
