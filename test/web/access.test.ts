// Every page for everybody: axe finds nothing on desktop and phone, by day and by night, and what is pressed with a
// finger is large enough for one.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { describeBrowser } from "../browser/chromium.ts";
import { marked } from "../chat/json-format.ts";
import { scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface AxeResult {
  violations: { id: string; help: string; nodes: { target: string[]; failureSummary: string }[] }[];
}

/** What axe finds, one line each; the colours by day and by night. */
async function problems(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const found: string[] = [];
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await page.evaluate(
      async (options) =>
        await (window as unknown as { axe: { run(options: object): Promise<AxeResult> } }).axe.run(
          options,
        ),
      colorScheme === "light" ? {} : { runOnly: ["color-contrast"] },
    );
    for (const { id, nodes } of violations) {
      for (const { target, failureSummary } of nodes) {
        found.push(`${colorScheme}: ${id}: ${target.join(" ")}: ${failureSummary}`);
      }
    }
  }
  return found;
}

const least = 40;

/** What can be pressed and is smaller than a finger. Links in a sentence and pieces of a story are as large as text. */
async function smallTargets(page: Page): Promise<string[]> {
  return await page.evaluate((size) => {
    const pressed = "button, summary, select, input:not([hidden]), textarea, a";
    return [...document.querySelectorAll<HTMLElement>(pressed)].flatMap((element) => {
      const isText = element.tagName === "A" && getComputedStyle(element).display === "inline";
      const isHidden = !element.checkVisibility({
        visibilityProperty: true,
        opacityProperty: true,
      });
      const label = element.closest("label");
      const { width, height } = (label ?? element).getBoundingClientRect();
      const isTask = element.matches(".markdown input");
      const isAside = element.matches(".skip");
      if (isText || isHidden || isTask || isAside || (width >= size && height >= size)) return [];
      const name = element.getAttribute("aria-label") ?? element.textContent?.trim().slice(0, 30);
      return [`${element.tagName} "${name}": ${width.toFixed(1)} x ${height.toFixed(1)}`];
    });
  }, least);
}

const answer = `Text, \`code\`, [link](https://example.com).

- [x] done

| ${"column | ".repeat(12)}
|${"---|".repeat(12)}
| ${"value | ".repeat(12)}

\`\`\`js
const a = "text"; // why
\`\`\`

> said`;

const called = `<think>Hm.</think>${answer}
<call>{"name": "look_up", "arguments": {"words": "everything"}}</call>
<call>{"name": "look_up", "arguments": {"words": "nothing"}}</call>`;

/** A batch of one request, which is complete when this returns. */
async function startBatch(page: Page): Promise<void> {
  const body = { messages: [{ role: "user", content: "Hello" }] };
  const line = { custom_id: "a", method: "POST", url: "/v1/chat/completions", body };
  const buffer = Buffer.from(JSON.stringify(line));
  const file = { name: "one.jsonl", mimeType: "application/jsonl", buffer };
  await page.getByLabel("File").setInputFiles(file);
  await page.getByRole("button", { name: "Start" }).click();
  await page.getByRole("button", { name: "Save the answers of one.jsonl" }).waitFor();
}

describeBrowser("every page", () => {
  const stage = useStage();

  test.each(["desktop", "phone"])("is accessible on a %s, by day and by night", async (device) => {
    let count = 0;
    const said = (): string => (++count > 1 ? "And so on." : called);
    const model = scriptedModel({ answer: said, format: marked });
    const { url } = await stage.serve({ models: { scripted: model }, hasBatches: true });
    const isPhone = device === "phone";
    const page = await stage.page(url, {
      reducedMotion: "reduce",
      viewport: isPhone ? { width: 390, height: 844 } : { width: 1280, height: 800 },
      hasTouch: isPhone,
    });
    const check = async (where: string): Promise<void> => {
      expect(await problems(page), where).toEqual([]);
      if (isPhone) expect(await smallTargets(page), where).toEqual([]);
    };
    await check("an empty chat");
    await page.getByRole("button", { name: "Tools" }).click();
    await page.getByRole("button", { name: "Example: look_up" }).click();
    await page.getByLabel("Arguments").fill('{ "type": "strong" }');
    await page.getByText('"strong" is not one of').waitFor();
    await check("a tool");
    await page.getByLabel("Arguments").fill("");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.keyboard.press("Escape");
    await say(page, "Hello");
    await answers(page);
    await page.locator(".hljs-keyword").waitFor();
    await page.getByLabel("Result").first().fill("nothing");
    await page.getByRole("button", { name: "Give this result" }).first().click();
    await page.locator("summary", { hasText: "Reasoning" }).click();
    await page.locator("summary", { hasText: "Result" }).click();
    await check("a chat with calls, of which one waits");
    await page.getByRole("button", { name: "JSON" }).click();
    await page.getByRole("button", { name: "Example: Facts" }).click();
    await page.getByText("Answers follow this schema.").waitFor();
    await check("a schema");
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Settings" }).click();
    await check("settings");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Export and import" }).click();
    await check("export");
    await page.keyboard.press("Escape");
    if (isPhone) {
      await page.getByRole("button", { name: "Conversations" }).click();
      await page.getByRole("link", { name: "New chat" }).waitFor();
      await check("the list");
      await page.keyboard.press("Escape");
    } else {
      await page.getByRole("button", { name: "Keyboard shortcuts" }).click();
      await check("keys");
      await page.keyboard.press("Escape");
    }
    await page.goto(`${url}/#/story`);
    await page.getByLabel("Continue writing").fill("It began.");
    await page
      .getByRole("button", { name: "2 alternatives" })
      .or(page.getByRole("button", { name: "3 alternatives" }))
      .click();
    await page.getByRole("button", { name: "Go on with 1" }).click();
    await page.locator(".piece").last().click();
    await check("a story");
    await page.locator(".piece.user").first().hover();
    await check("a story, the pointer on what the user wrote");
    await page.locator(".piece.user").first().click();
    await check("a story, what the user wrote is picked");
    for (const name of ["machine", "limits", "quantize", "models", "batches"]) {
      await page.goto(`${url}/#/${name}`);
      await expect.poll(() => page.title()).toMatch(new RegExp(name, "i"));
      await page.locator("main h1:visible").waitFor();
      if (name === "batches") await startBatch(page);
      await check(name);
    }
    await page.goto(`${url}/worker`);
    await page.locator("main h1").waitFor();
    await check("a tab that computes");
    const closed = await stage.serve({ models: { scripted: model }, token: "t0ken" });
    await page.goto(closed.url);
    await page.getByLabel("Link or token").waitFor();
    await check("the way in");
  });
});
