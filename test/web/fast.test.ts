// A model that writes faster than a screen shows: what the page does per token is bounded, whatever the answer's length.
// Work is counted (changes of the document, nodes that are made), not time, which a busy machine would decide; the
// longest task is only told.

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { describeBrowser } from "../browser/chromium.ts";
import { scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

const paragraphs = 60;
const paragraph = (at: number): string =>
  at % 6 === 5
    ? `\`\`\`js\nconst part${at} = ${at};\nconsole.log(part${at});\n\`\`\``
    : `Part ${at} of a **long** answer, with a [link](https://example.com/${at}) and \`code\` in it.`;
const text = Array.from({ length: paragraphs }, (_, at) => paragraph(at)).join("\n\n");
/** The scripted model's tokens have four letters. */
const tokens = Math.ceil(text.length / 4);

/** What happened in the page while an answer was written. */
interface Work {
  frames: number;
  /** Times at which the answer changed in the document: once per rendering. */
  renders: number;
  /** Nodes made, in the first and in the second half of the renderings. */
  madeFirst: number;
  madeSecond: number;
  /** Renderings that touched a block before the last two. */
  oldTouched: number;
  longestTaskMs: number;
  longTasks: number;
}

/** Begins to count in the page; what it returns ends it and tells. */
async function countWork(page: Page): Promise<() => Promise<Work>> {
  await page.evaluate(() => {
    const renders: { made: number; old: boolean }[] = [];
    const tasks: number[] = [];
    let frames = 0;
    let counting = true;
    const frame = (): void => {
      frames++;
      if (counting) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) tasks.push(duration);
    }).observe({ type: "longtask" });
    const observer = new MutationObserver((records) => {
      const markdown = document.querySelector(".answer .markdown");
      if (!markdown) return;
      const inside = records.filter(({ target }) => markdown.contains(target));
      if (inside.length === 0) return;
      // A block that was finished before stands before the last two and what was added after them.
      const added = inside.reduce(
        (sum, { target, addedNodes }) => sum + (target === markdown ? addedNodes.length : 0),
        0,
      );
      const blocks = [...markdown.children];
      const finished = blocks.slice(0, Math.max(0, blocks.length - 2 - added));
      renders.push({
        made: inside.reduce((sum, { addedNodes }) => sum + addedNodes.length, 0),
        old: inside.some(({ target }) => finished.some((block) => block.contains(target))),
      });
    });
    observer.observe(document.body, { childList: true, characterData: true, subtree: true });
    Object.assign(window, {
      endCounting: () => {
        counting = false;
        observer.disconnect();
        const half = renders.length >> 1;
        const made = (list: typeof renders) => list.reduce((sum, { made }) => sum + made, 0);
        return {
          frames,
          renders: renders.length,
          madeFirst: made(renders.slice(0, half)),
          madeSecond: made(renders.slice(half)),
          oldTouched: renders.filter(({ old }) => old).length,
          longestTaskMs: Math.max(0, ...tasks),
          longTasks: tasks.length,
        };
      },
    });
  });
  return () => page.evaluate(() => (window as unknown as { endCounting(): Work }).endCounting());
}

describeBrowser("an answer at more than 200 tokens/s", () => {
  const stage = useStage();

  test("is rendered once a frame, and only its end", async ({ annotate }) => {
    const model = scriptedModel({ answer: () => text, msPerPiece: 3 });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    const end = await countWork(page);
    await say(page, "Write fast");
    const [shown] = await answers(page);
    const work = await end();
    await annotate(
      `${tokens} tokens: ${work.renders} renderings in ${work.frames} frames, ${work.madeFirst + work.madeSecond} nodes; longest task ${work.longestTaskMs.toFixed(0)} ms, ${work.longTasks} over 50 ms`,
    );
    expect(shown).toContain(`Part ${paragraphs - 2} of a long answer`);
    // The last rendering, which shows the end at once, may come between two frames.
    expect(work.renders).toBeLessThanOrEqual(work.frames + 2);
    expect(work.renders).toBeGreaterThan(10); // it was seen to grow
    // The first block of code gets its colours when the part that knows its language has come.
    expect(work.oldTouched).toBeLessThanOrEqual(1);
    // A rendering in the long second half makes no more nodes than one in the first.
    expect(work.madeSecond).toBeLessThanOrEqual(work.madeFirst * 1.5 + 50);
    // At most the two last blocks are made anew: a handful of nodes per rendering.
    expect(work.madeFirst + work.madeSecond).toBeLessThanOrEqual(work.renders * 16);
  });

  test("that is one long list leaves its first items alone, and counts on", async ({
    annotate,
  }) => {
    const items = Array.from({ length: 100 }, (_, at) => `${at + 1}. item **${at + 1}**`);
    const model = scriptedModel({ answer: () => items.join("\n"), msPerPiece: 3 });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    const end = await countWork(page);
    await say(page, "List a hundred things");
    await answers(page);
    const work = await end();
    await annotate(`${work.renders} renderings; longest task ${work.longestTaskMs.toFixed(0)} ms`);
    const lists = page.locator(".answer .markdown ol");
    const starts = await lists.evaluateAll((all) =>
      all.map((list) => (list as HTMLOListElement).start),
    );
    expect(starts).toEqual([1, 25, 49, 73, 97]);
    await expect
      .poll(() => page.locator(".answer .markdown li").allInnerTexts())
      .toEqual(items.map((_, at) => `item ${at + 1}`));
    expect(work.oldTouched).toBe(0);
    // No gap between two pieces: an item is as far below the last one as any other.
    const tops = await page
      .locator(".answer .markdown li")
      .evaluateAll((all) => all.map((item) => item.getBoundingClientRect().top));
    expect(tops[24]! - tops[23]!).toBeCloseTo(tops[23]! - tops[22]!, 0);
  });
});
