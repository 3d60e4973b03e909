// A chat that outgrows the context: the ways on are in the error itself, and each of them works. And every model that the server
// has can be loaded again, with what was chosen for it.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ChosenOptions } from "../../src/cli/load-choices.ts";
import { catalogLibrary } from "../../src/cli/serve-library.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

const facts = { licence: "MIT", bytes: 1, chat: true, source: "a test", diskBytes: 0 };

describeBrowser("a full context", () => {
  const stage = useStage();

  test("offers a larger one, the latest messages only, and a new chat with a summary", async () => {
    const prompts: string[] = [];
    const answer = (prompt: string): string => {
      prompts.push(prompt);
      return prompt.includes("Summarise") ? "They spoke of boats." : "Yes.";
    };
    const opened: unknown[] = [];
    const small = scriptedModel({ answer, contextSize: 700 });
    const { url } = await stage.serve({
      models: { scripted: small },
      library: {
        list: async () => [{ name: "scripted", description: "", state: "given", ...facts }],
        open: async (_, { contextSize = 700 }) => {
          opened.push(contextSize);
          return scriptedModel({ answer, contextSize: contextSize ?? 700 });
        },
        plan: async (_, { contextSize = 700 }) => {
          const parts = { weightBytes: 0, kvBytes: contextSize, workBytes: 0 };
          const memory = { memoryBytes: 4000, freeMemoryBytes: 2600 };
          return {
            ...parts,
            totalBytes: contextSize,
            contextSize,
            trainedContext: 1e5,
            layers: 1,
            ...memory,
          };
        },
      },
    });
    const page = await stage.page(url);
    const ways = page.getByRole("alert", { name: "The context is full" });
    const long = "boats ".repeat(50);
    await say(page, `first ${long}`);
    await answers(page);
    const refused = async (text: string) => {
      await page.getByLabel("Message", { exact: true }).fill(text);
      await page.keyboard.press("Enter");
      await ways.waitFor();
    };
    await refused(`second ${long} ${long}`);
    await ways.getByRole("button", { name: "Continue in a new chat with a summary" }).click();
    const card = page.getByRole("region", { name: "Summary of the earlier chat" });
    await card.getByText("They spoke of boats.").waitFor();
    await card.getByRole("button", { name: "Edit" }).click();
    await card.getByLabel("Edit the summary").fill("They spoke of ships.");
    await card.getByRole("button", { name: "Save" }).click();
    await card.getByText("They spoke of ships.").waitFor();
    await say(page, "Go on");
    await answers(page);
    expect(prompts.at(-1)).toContain("They spoke of ships.");

    await page.goBack();
    await page.getByText("first boats").first().waitFor();
    await refused(`third ${long} ${long}`);
    await ways.getByRole("button", { name: "Let it read only the latest messages" }).click();
    await ways.waitFor({ state: "detached" });
    const before = prompts.length;
    await page.getByLabel("Message", { exact: true }).fill("third");
    await page.keyboard.press("Enter");
    await expect.poll(() => prompts.length).toBe(before + 1);
    await answers(page);
    await say(page, `fourth ${long}`);
    await expect.poll(() => prompts.length).toBe(before + 2);
    await answers(page);
    expect(prompts.at(-1)).toContain("fourth");
    expect(prompts.at(-1)).not.toContain("first");

    await page.getByRole("button", { name: "Remove: Only the latest" }).click();
    await refused(`fifth ${long} ${long}`);
    await ways.getByRole("button", { name: "Reload with 1,400 tokens" }).click();
    await ways.waitFor({ state: "detached" });
    expect(opened).toEqual([1400]);
  });

  test("a model of the command line is in the list, and what was chosen for it is remembered", async () => {
    const file = await tinyFile();
    const folder = mkdtempSync(join(tmpdir(), "lantern-options-"));
    onTestFinished(async () => {
      rmSync(folder, { recursive: true, force: true });
    });
    const platform = { ...nodeDownloadPlatform(), cacheFolder: folder };
    const store = join(folder, "data", "model-options.json");
    const library = async () =>
      catalogLibrary(
        ...([platform, { threads: 1 }, { mine: { location: file.path } }] as const),
        undefined,
        await ChosenOptions.read(platform, store, (line) => expect(line).toBe("")),
      );
    const first = await library();
    const listed = async (from: typeof first) =>
      (await from.list()).find(({ name }) => name === "mine");
    expect(await listed(first)).toMatchObject({ state: "given", options: {} });
    const task = { signal: new AbortController().signal, onProgress: () => {} };
    await (await first.open("mine", { ...task, contextSize: 64 })).dispose();
    const again = await library(); // another start
    expect(await listed(again)).toMatchObject({ options: { contextSize: 64 } });
    expect((await again.plan("mine", {})).contextSize).toBe(64);
    await using model = await again.open("mine", task);
    expect(model.info.contextSize).toBe(64);
  });
});
