// The Chat page in a real browser: asking, Markdown while it comes, stopping, versions and going back, the list of
// conversations, settings; and a model that cannot chat.
// Held against: the words of a scripted model.

import { readFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import type { ModelLibrary } from "../../apps/server/serve.ts";
import { type GenerateOptions, type Model, open, SourceError } from "../../src/index.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { heldAt, scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

const markdown = `# A list

- one **bold** point
- a [link](https://example.org/x)

3. three

4. four

| a | b |
|---|--:|
| 1 | 2 |

\`\`\`js
const answer = 42;
\`\`\`

The end.`;

describeBrowser("the Chat page", () => {
  const stage = useStage();
  let count = 0;
  const counting = () => scriptedModel({ answer: () => `Answer ${++count}.` });

  test("streams Markdown, offers its code, and shows the same after a reload", async () => {
    const model = scriptedModel({ answer: () => markdown, msPerPiece: 5 });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    expect(page.url()).toContain("#/chat");
    await say(page, "Show me everything");
    await answers(page);
    const answer = page.locator(".answer .markdown");
    await expect.poll(() => answer.locator("h1").innerText()).toBe("A list");
    await expect.poll(() => answer.locator("li strong").innerText()).toBe("bold");
    await expect.poll(() => answer.locator("td").allInnerTexts()).toEqual(["1", "2"]);
    await expect.poll(() => answer.locator("td[align=right]").count()).toBe(1);
    await expect.poll(() => answer.locator('ol[start="3"] > li').count()).toBe(2); // one list, also with lines between
    const link = answer.locator("a");
    await expect.poll(() => link.getAttribute("rel")).toContain("noopener");
    await expect.poll(() => link.getAttribute("target")).toBe("_blank");
    await page.evaluate(() => {
      const copied: string[] = [];
      Object.assign(window, { copied });
      navigator.clipboard.writeText = async (text) => void copied.push(text);
    });
    await page.getByRole("button", { name: "Copy code" }).click();
    const copied = await page.evaluate(() => (window as unknown as { copied: string[] }).copied);
    expect(copied).toEqual(["const answer = 42;"]);
    await expect.poll(() => page.locator(".gauge").innerText()).toMatch(/tokens\/s.*first token/s);
    const streamed = await answer.innerHTML();
    await page.reload();
    await answers(page);
    // What was put together from blocks as they came is what the whole text gives.
    const neutral = (html: string) => html.replaceAll(/<button.*?<\/button>/gs, "");
    expect(neutral(await answer.innerHTML())).toBe(neutral(streamed));
  });

  test("a private chat is marked, and leaves nothing in the browser", async () => {
    count = 0;
    const { url } = await stage.serve({ models: { scripted: counting() } });
    const page = await stage.page(url);
    const box = page.getByPlaceholder("Write a message");
    await box.fill("A secret draft");
    const remembered = () => page.evaluate(() => JSON.stringify({ ...localStorage }));
    await expect.poll(remembered).toContain("secret");
    await page.getByRole("button", { name: "Private" }).click();
    await expect.poll(remembered).not.toContain("secret");
    await say(page, "A secret question");
    expect(await answers(page)).toEqual(["Answer 1."]);
    await expect.poll(() => page.locator(".page-head span.chip").innerText()).toBe("Private");
    await expect.poll(() => page.locator(".sessions .when").innerText()).toMatch(/^Private/);
    await box.fill("One more secret");
    expect(await remembered()).not.toContain("secret");
    await page.getByRole("button", { name: /^Delete / }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await expect.poll(() => page.locator(".sessions .when").count()).toBe(0);
    // The next one is not private.
    await expect
      .poll(() => page.getByRole("button", { name: "Private" }).getAttribute("aria-pressed"))
      .toBe("false");
    expect(await remembered()).not.toContain("secret");
  });

  test("edits, answers again, switches versions, goes back and forward", async () => {
    count = 0;
    const { url } = await stage.serve({ models: { scripted: counting() } });
    const page = await stage.page(url);
    await say(page, "First");
    expect(await answers(page)).toEqual(["Answer 1."]);
    await say(page, "Second");
    expect(await answers(page)).toEqual(["Answer 1.", "Answer 2."]);
    const last = page.locator(".message").last();
    await last.getByRole("button", { name: "Answer again" }).click();
    await page.getByText("Answer 3.").waitFor();
    expect(await answers(page)).toEqual(["Answer 1.", "Answer 3."]);
    await expect.poll(() => last.locator(".branch-count").innerText()).toBe("2/2");
    await last.getByRole("button", { name: "Previous version" }).click();
    await page.getByText("Answer 2.").waitFor();
    await expect.poll(() => last.locator(".branch-count").innerText()).toBe("1/2");

    const second = page.locator(".message.user").last();
    await second.hover();
    await second.getByRole("button", { name: "Edit" }).click();
    await page.getByLabel("Edit your message").fill("Second, changed");
    await page.keyboard.press("Control+Enter");
    await page.getByText("Answer 4.").waitFor();
    await expect
      .poll(() => page.locator(".bubble").allInnerTexts())
      .toEqual(["First", "Second, changed"]);

    const first = page.locator(".message.assistant").first();
    await first.hover();
    await first.getByRole("button", { name: "Go back to here" }).click();
    await page.getByText("You went back to here").waitFor();
    expect(await answers(page)).toEqual(["Answer 1."]);
    await page.getByRole("button", { name: "Show them" }).click();
    await page.getByText("Answer 4.").waitFor();
    await page.getByText("You went back to here").waitFor({ state: "detached" });
  });

  test("Escape stops, and what was written is kept", async () => {
    const model = scriptedModel({
      answer: () => "word ".repeat(1000),
      before: heldAt("word word word word"),
    });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    await say(page, "Talk");
    await page.getByText("word word word").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("Stopped. The text so far is kept.").waitFor();
    const [text] = await answers(page);
    expect(text!.length).toBeGreaterThan(10);
    expect(text!.length).toBeLessThan(2000);
    await page.reload();
    expect((await answers(page))[0]).toBe(text);
  });

  test("Shift+Enter is a new line, and Enter in the middle of typing Japanese is not a message", async () => {
    count = 0;
    const { url } = await stage.serve({ models: { scripted: counting() } });
    const page = await stage.page(url);
    await page.getByLabel("Message", { exact: true }).fill("one");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("two");
    await page.locator(".composer textarea").evaluate((area) => {
      const composing = { key: "Enter", bubbles: true, cancelable: true, isComposing: true };
      area.dispatchEvent(new KeyboardEvent("keydown", composing));
    });
    await page.keyboard.press("Enter");
    await page.getByText("Answer 1.").waitFor();
    await expect.poll(() => page.locator(".bubble").allInnerTexts()).toEqual(["one\ntwo"]);
  });

  test("lists, finds, renames, exports and deletes conversations", async () => {
    count = 0;
    const { url } = await stage.serve({ models: { scripted: counting() } });
    const page = await stage.page(url);
    for (const text of ["Apples and pears", "Boats"]) {
      await page.getByRole("link", { name: "New chat" }).click();
      await page.getByText("What shall we talk about?").waitFor();
      await say(page, text);
      await answers(page);
    }
    const titles = page.locator(".sidebar .sessions .title");
    await expect.poll(() => titles.allInnerTexts()).toEqual(["Boats", "Apples and pears"]);
    await page.getByRole("searchbox").fill("pears");
    await expect.poll(() => titles.allInnerTexts()).toContain("Apples and pears");
    await expect.poll(() => page.locator("mark").first().innerText()).toBe("pears");
    await titles.first().click();
    await page.locator("h1", { hasText: "Apples and pears" }).waitFor();
    await page.getByRole("searchbox").fill("");

    await page.locator(".sessions li", { hasText: "Apples" }).hover();
    await page.getByRole("button", { name: "Rename Apples and pears" }).click();
    await page.getByLabel("Title").fill("Fruit");
    await page.keyboard.press("Enter");
    await page.locator("h1", { hasText: "Fruit" }).waitFor();

    await page.getByRole("button", { name: "Export and import" }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Save as Markdown" }).click(),
    ]);
    expect(download.suggestedFilename()).toBe("Fruit.md");
    expect(readFileSync(await download.path(), "utf8")).toContain("Apples and pears");

    await page.locator(".sessions li", { hasText: "Fruit" }).hover();
    await page.getByRole("button", { name: "Delete Fruit" }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await expect.poll(() => titles.allInnerTexts()).toEqual(["Boats"]);
  });

  test("settings and the system prompt reach the model", async () => {
    const seen: { prompt: string; options: GenerateOptions }[] = [];
    const model = scriptedModel({
      answer: (prompt, options) => {
        seen.push({ prompt, options });
        return "Yes.";
      },
    });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("dialog").getByLabel("System prompt").fill("Speak like a pirate");
    await page.getByRole("dialog").getByLabel("Temperature").fill("1.5");
    await page.getByRole("dialog").getByLabel("Seed").fill("7");
    await page.keyboard.press("Escape"); // what was typed counts at once
    await say(page, "Hello");
    await answers(page);
    expect(seen[0]!.prompt).toBe("<system>Speak like a pirate\n<user>Hello\n");
    expect(seen[0]!.options).toMatchObject({ temperature: 1.5, seed: 7 });
  });

  test("a real model answers, and the second turn finds the first in its cache", async () => {
    const file = await tinyFile(); // it talks nonsense, with a template
    try {
      await using model = await open(file.path, { threads: 1, contextSize: 512 });
      const { url } = await stage.serve({ models: { tiny: model } });
      const page = await stage.page(url);
      await page.getByRole("button", { name: "Settings" }).click();
      await page.getByRole("dialog").getByLabel("Longest answer").fill("16");
      await page.getByRole("button", { name: "Close" }).click();
      await say(page, "the cat sat");
      await answers(page);
      await say(page, "the cat");
      await answers(page);
      const gauge = page.locator(".gauge").last();
      await expect.poll(() => gauge.innerText()).toMatch(/tokens\/s/);
      await expect.poll(() => gauge.innerText()).toMatch(/[1-9]\d* cached/);
    } finally {
      file.remove();
    }
  });

  test("the pages have their models; a conversation's is chosen in it, and loaded again after a restart", async () => {
    const tale = scriptedModel({ answer: () => " and so on", chat: false });
    const talk = scriptedModel({ answer: () => "I am talk." });
    const other = (): Model => scriptedModel({ answer: () => "I am other." });
    const file = await tinyFile();
    onTestFinished(() => file.remove());
    const site = await stage.serve({
      models: { tale, other: other(), talk },
      pages: { story: "tale", chat: "talk" },
      library: { locate: async () => file.path },
    });
    const page = await stage.page(`${site.url}/#/story`);
    const picker = page.getByLabel("Model", { exact: true });
    await expect.poll(() => picker.inputValue()).toBe("tale");
    await page.getByRole("link", { name: "Chat", exact: true }).first().click();
    await page.getByText("What shall we talk about?").waitFor();
    await expect.poll(() => picker.inputValue()).toBe("talk");
    await say(page, "Who are you?");
    expect(await answers(page)).toEqual(["I am talk."]);
    await picker.selectOption("other");
    await say(page, "And now?");
    expect(await answers(page)).toEqual(["I am talk.", "I am other."]);

    await site.stop();
    const asked: (string | undefined)[] = [];
    const open: ModelLibrary["open"] = async (_, { path }) => {
      asked.push(path);
      if (asked.length === 1) throw new SourceError("there is no file. Check the path");
      return other();
    };
    await site.startAgain({ models: { tale }, library: { open } });
    await page.reload();
    await page.getByText("other is not loaded").waitFor();
    const box = page.getByLabel("Message", { exact: true });
    await box.fill("Still there?");
    await page.keyboard.press("Enter");
    await page.getByText("which is not loaded: there is no file").waitFor();
    await expect.poll(() => box.inputValue()).toBe("Still there?"); // nothing is lost
    await page.getByRole("button", { name: "Send" }).click();
    await page.locator(".answer .markdown").nth(2).waitFor();
    expect(await answers(page)).toEqual(["I am talk.", "I am other.", "I am other."]);
    expect(asked).toEqual([file.path, file.path]);
    await expect.poll(() => picker.inputValue()).toBe("other");
  });

  test("a model without a chat template is not made to chat", async () => {
    const model = scriptedModel({ answer: () => "and so on", chat: false });
    const { url } = await stage.serve({ models: { storyteller: model } });
    const page = await stage.page(url);
    expect(page.url()).toContain("#/story"); // where it is of use
    await page.getByRole("link", { name: "Chat", exact: true }).first().click();
    await page.getByText("storyteller does not chat").waitFor();
    await expect.poll(() => page.getByLabel("Message", { exact: true }).count()).toBe(0);
    await page.getByRole("link", { name: "Get a chat model" }).click();
    await page.locator("h1", { hasText: "Models" }).waitFor();
  });
});
