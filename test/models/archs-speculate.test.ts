// Every architecture of ../shared/archs with drafts: the text is the one without, and llama.cpp's. Drafts are llama.cpp's own greedy
// tokens, some of them damaged, so that batches of every size are verified, and state of every kind goes back.

import { expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { oracle, run } from "../engine/speculate/drafters.ts";
import { nativeHere } from "../support/native.ts";
import { describeShared } from "../support/shared.ts";
import { archFiles, goldenCases, loadArch } from "./archs-golden.ts";

const { name, native } = nativeHere[0] ?? { name: "wasm", native: "a test" };
const cpu = () => new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });

describeShared(`drafts change no text, ${name}`, "archs", () => {
  const decoders = archFiles().supported.filter((file) => goldenCases(file).length > 0);

  test.each(decoders)("%s", async (file) => {
    const cases = goldenCases(file);
    const engine = await loadArch(file, cpu());
    for (const { tokens, greedy } of cases) {
      const options = { temperature: 0, maxTokens: greedy.length, ignoreEos: true };
      const alone = await run(engine, tokens, options);
      const text = alone.tokenIds;
      for (const wrong of [0, 0.3, 1]) {
        const drafter = oracle(greedy, engine.vocabSize, wrong, 5);
        const drafted = await run(engine, tokens, options, [drafter]);
        expect(drafted.tokenIds, `${wrong} of the drafts are wrong`).toEqual(text);
        if (wrong === 0 && String(text) === String(greedy)) {
          expect(drafted.timings.speculation!.accepted).toBeGreaterThan(greedy.length / 2);
        }
      }
    }
    engine.dispose();
  });
});
