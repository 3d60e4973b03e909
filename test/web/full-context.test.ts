// A chat that outgrows the context: the ways on are in the error itself, and each of them works. And every model that the server
// has can be loaded again, with what was chosen for it.

import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ChosenOptions } from "../../apps/cli/load-choices.ts";
import { catalogLibrary } from "../../apps/cli/serve-library.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { heldAt, scriptedModel } from "./scripted-model.ts";
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
        plan: async (_, change) => {
          const contextSize = change.contextSize ?? 700;
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

  test("is said again after a reload of the page, and its summary can be stopped", async () => {
    const long = "boats ".repeat(150);
    const model = scriptedModel({
      answer: (prompt) => (prompt.includes("Summarise") ? "They spoke of boats." : "Yes."),
      before: heldAt("They"),
      contextSize: 700,
    });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    const ways = page.getByRole("alert", { name: "The context is full" });
    const box = page.getByLabel("Message", { exact: true });
    // The first message of a chat that does not exist yet.
    await box.fill(long);
    await page.keyboard.press("Enter");
    await ways.waitFor();
    await page.reload();
    await ways.waitFor();
    await expect.poll(() => box.inputValue()).toBe(long);
    await box.fill("");
    await ways.waitFor({ state: "detached" });

    await say(page, "Boats?");
    await answers(page);
    await box.fill(long);
    await page.keyboard.press("Enter");
    await ways.waitFor();
    await page.reload();
    await ways.getByRole("button", { name: "Continue in a new chat with a summary" }).click();
    await ways.getByText("The model is writing the summary").waitFor();
    await ways.getByRole("button", { name: "Stop" }).click();
    await ways.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
    expect(await page.getByRole("region", { name: "Summary of the earlier chat" }).count()).toBe(0);
    await ways.getByRole("button", { name: "Let it read only the latest messages" }).click();
    await box.fill("Ships?");
    await page.keyboard.press("Enter"); // nothing goes on on the server: the next answer comes
    await expect.poll(() => answers(page)).toEqual(["Yes.", "Yes."]);
    await page.reload();
    await answers(page);
    expect(await ways.count()).toBe(0);
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
    expect((await again.plan("mine", { contextSize: null })).contextSize).toBe(512); // forgets it
  });

  test("the file of what was chosen is private and whole; a damaged one is named and set aside", async () => {
    const folder = mkdtempSync(join(tmpdir(), "lantern-options-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const platform = { ...nodeDownloadPlatform(), cacheFolder: folder };
    const file = join(folder, "model-options.json");
    writeFileSync(file, '{"/a.gguf": {"contextS');
    const said: string[] = [];
    const read = () => ChosenOptions.read(platform, file, (line) => said.push(line));
    const chosen = await read();
    expect(chosen.of("/a.gguf")).toEqual({});
    expect(said).toHaveLength(1);
    expect(said[0]).toContain(`It is set aside as ${file}.damaged`);
    expect(readFileSync(`${file}.damaged`, "utf8")).toContain("contextS");
    // Two loads end at once.
    await Promise.all([
      chosen.keep("/a.gguf", { contextSize: 64 }),
      chosen.keep("/b.gguf", { threads: 2 }),
    ]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const again = await read();
    expect(said).toHaveLength(1);
    expect([again.of("/a.gguf"), again.of("/b.gguf")]).toEqual([
      { contextSize: 64 },
      { threads: 2 },
    ]);
  });
});
