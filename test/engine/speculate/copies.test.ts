// Copies of state outside of the backend never hold a drafted token that was wrong.

import { expect, test } from "vitest";
import { mixedName } from "../../support/mixed-arch.ts";
import { tinyEngine, tinyPrompt, tinyShape } from "../../support/tiny-engine.ts";
import { MemoryFolders } from "../tiers/memory-folders.ts";
import { alwaysWrong, oracle, run } from "./drafters.ts";

const { vocab } = tinyShape;
const greedy = { temperature: 0, maxTokens: 70 };

function engineOn(folders: MemoryFolders, architecture = "llama") {
  const tiers = { model: "tiny", weights: "w", exact: false, now: () => 0, folders };
  return tinyEngine({
    architecture,
    contextSize: 256,
    tiers: { ...tiers, ramBytes: 1e7, diskBytes: 1e8 },
  });
}

/** The bytes of all stored files, sorted. */
function stored({ files }: MemoryFolders): string[] {
  const all = [...files.values()].map(({ bytes }) => Buffer.from(bytes));
  return all.sort(Buffer.compare).map((bytes) => bytes.toString("base64"));
}

test("the same files as without drafts", async () => {
  const prompt = tinyPrompt(1, 50);
  const folders = [new MemoryFolders(), new MemoryFolders()] as const;
  let text: number[] = [];
  for (const [i, folder] of folders.entries()) {
    const engine = await engineOn(folder);
    const drafters = i === 0 ? [] : [alwaysWrong(text, vocab)];
    const { tokenIds, timings } = await run(engine, prompt, greedy, drafters);
    text = tokenIds;
    if (i === 1) expect(timings.speculation!.drafted).toBeGreaterThan(300);
    await engine.settled();
    engine.dispose();
    await engine.ended();
  }
  expect(stored(folders[0])).not.toEqual([]);
  expect(stored(folders[1])).toEqual(stored(folders[0]));
});

test.each(["llama", mixedName])(
  "%s: what comes back is what was computed",
  async (architecture) => {
    const prompt = tinyPrompt(2, 50);
    const plain = await tinyEngine({ architecture, contextSize: 256 });
    const alone = await run(plain, prompt, greedy);
    const turn = [...prompt, ...alone.tokenIds, 3, 4];
    const next = await run(plain, turn, { ...greedy, maxTokens: 20, cachePrompt: false });
    plain.dispose();
    const folders = new MemoryFolders();
    const first = await engineOn(folders, architecture);
    await run(first, prompt, greedy, [oracle(alone.tokenIds, vocab, 0.4)]);
    await first.settled();
    first.dispose();
    await first.ended();
    const second = await engineOn(folders, architecture);
    const again = await run(second, turn, { ...greedy, maxTokens: 20 });
    expect(again.timings.cachedTokens).toBeGreaterThanOrEqual(64);
    expect(again.tokenIds).toEqual(next.tokenIds);
    second.dispose();
    await second.ended();
  },
);
