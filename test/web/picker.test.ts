// The model picker of the Chat page in a real browser: it shows models that are not in memory, loads the one that is chosen, changes
// models in the middle of a conversation, and says why one could not be loaded.
// Held against: a library made up here.

import { expect, test } from "vitest";
import type { StartOptions } from "../../apps/server/serve.ts";
import { ModelError } from "../../src/index.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

describeBrowser("the model picker", () => {
  const stage = useStage();

  test("loads what is chosen, between two models in one conversation; a failure says why", async () => {
    const loads: string[] = [];
    const gate = Promise.withResolvers<void>();
    const onDemand: NonNullable<StartOptions["onDemand"]> = {
      list: async () =>
        ["bee", "broken"].map((id) => ({ id, aliases: [], file: `${id}.gguf`, bytes: 9 })),
      async open(id) {
        loads.push(id);
        if (id === "broken") throw new ModelError("the file is cut off at byte 9");
        await gate.promise;
        return scriptedModel({ answer: () => "I am bee." });
      },
      needs: async () => 0,
      preset: () => undefined,
      aliased: () => undefined,
      derive: async () => {},
      forget: () => false,
      version: () => "",
    };
    const ant = scriptedModel({ answer: () => "I am ant." });
    const site = await stage.serve({ models: { ant }, onDemand });
    const page = await stage.page(`${site.url}/#/chat`);
    const picker = page.getByLabel("Model", { exact: true });
    const labels = (): Promise<string[]> => picker.locator("option").allTextContents();
    await expect.poll(labels).toContain("bee (not loaded)");
    await say(page, "Who are you?");
    await expect.poll(() => answers(page)).toEqual(["I am ant."]);

    await picker.selectOption("bee");
    await expect.poll(labels).toContain("bee (loading)");
    gate.resolve();
    await expect.poll(labels).toContainEqual(expect.stringMatching(/^bee \(\d.*B\)$/));
    await say(page, "And now?");
    await expect.poll(() => answers(page)).toEqual(["I am ant.", "I am bee."]);
    await picker.selectOption("ant");
    await say(page, "And then?");
    await expect.poll(() => answers(page)).toEqual(["I am ant.", "I am bee.", "I am ant."]);
    expect(loads).toEqual(["bee"]);

    await picker.selectOption("broken");
    await page.getByText("the file is cut off at byte 9").first().waitFor();
    await expect.poll(labels).toContain("broken (failed)");
    await picker.selectOption("ant");
    await expect.poll(() => page.getByText("the file is cut off").count()).toBe(0);
    await say(page, "Still there?");
    await expect.poll(async () => (await answers(page)).at(-1)).toBe("I am ant.");
  });
});
