// The Story page in a real browser, with the model that comes with the package: writing together, undoing, alternatives.
// Held against: the words of a scripted model, and a real one.

import { expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { scriptedModel } from "./scripted-model.ts";
import { useStage } from "./stage.ts";

describeBrowser("the Story page", () => {
  const stage = useStage();

  test("a real model continues what a person began", async () => {
    await using model = await open("stories15m", { threads: 1 });
    const { url } = await stage.serve({ models: { stories15m: model } });
    const page = await stage.page(url);
    await page.getByLabel("Continue writing").fill("Once upon a time");
    await page.getByLabel("Temperature").fill("0");
    await page.getByLabel("Length").fill("10");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Continue" }).click();
    const text = page.locator(".story-text");
    await page.getByText(/there was a/).waitFor();
    await page.getByRole("button", { name: "Continue" }).waitFor();
    await expect.poll(() => text.textContent()).toMatch(/^Once upon a time, there was a/);
    await expect.poll(() => page.locator(".piece").count()).toBe(2);
    await expect.poll(() => page.locator(".meter").innerText()).toMatch(/of 256 tokens of context/);
    await expect.poll(() => page.locator("h1").innerText()).toBe("Once upon a time");
  });

  test("alternatives side by side, one chosen; undo, redo, rewrite, other versions", async () => {
    let count = 0;
    const model = scriptedModel({ answer: () => ` piece ${++count}.`, chat: false });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    const text = page.locator(".story-text");
    await page.getByLabel("Continue writing").fill("It began.  ");
    await page.keyboard.press("Control+Enter");
    await expect.poll(() => text.textContent()).toBe("It began. piece 1.");
    await page.getByRole("button", { name: "Continue" }).waitFor();
    await page.getByLabel("Continue writing").fill("Then I wrote");
    await page.getByRole("button", { name: "3 alternatives" }).click();
    await page.getByText("piece 4.").waitFor();
    await expect.poll(() => page.locator(".alternative").count()).toBe(3);
    await expect.poll(() => text.textContent()).toBe("It began. piece 1. Then I wrote");
    await page.getByRole("button", { name: "Go on with 2" }).click();
    const whole = "It began. piece 1. Then I wrote piece 3.";
    await expect.poll(() => text.textContent()).toBe(whole);

    await page.getByRole("button", { name: "Undo" }).click();
    await expect.poll(() => text.textContent()).toBe("It began. piece 1. Then I wrote");
    await page.getByRole("button", { name: "Undo" }).click();
    await expect.poll(() => text.textContent()).toBe("It began. piece 1.");
    await page.getByRole("button", { name: "Redo" }).click();
    await expect.poll(() => text.textContent()).toBe("It began. piece 1. Then I wrote");
    await page.getByRole("button", { name: "Redo" }).click();
    await expect.poll(() => text.textContent()).toBe(whole);

    await page.locator(".piece").last().click();
    await expect.poll(() => page.locator(".branch-count").innerText()).toBe("2/3");
    await page.getByRole("button", { name: "Next version" }).click();
    await expect.poll(() => text.textContent()).toBe(whole.replace("piece 3", "piece 4"));

    await page.locator(".piece").first().click();
    await page.getByRole("button", { name: "Rewrite" }).click();
    await page.getByLabel("Piece of the story").fill("It ended.");
    await page.getByRole("button", { name: "Keep", exact: true }).click();
    await expect.poll(() => text.textContent()).toBe("It ended.");
    await page.reload(); // the text is the server's
    await expect.poll(() => text.textContent()).toBe("It ended.");
  });

  test("alternatives that are still being written stand side by side after a reload", async () => {
    let count = 0;
    const answer = () => ` way${++count} ${"on ".repeat(30)}`;
    const rest = Promise.withResolvers<void>();
    const before = (said: string) => (said.includes("on on") ? rest.promise : undefined);
    const model = scriptedModel({ answer, before, chat: false });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    await page.getByLabel("Length").fill("400");
    await page.getByLabel("Continue writing").fill("There were");
    await page.getByRole("button", { name: "3 alternatives" }).click();
    await page.getByText("way3 on").waitFor();
    await page.reload();
    await page.getByText("way3 on").waitFor();
    await expect.poll(() => page.locator(".alternative").count()).toBe(3);
    rest.resolve();
    await page.getByRole("button", { name: "Go on with 3" }).click();
    const text = page.locator(".story-text");
    await expect.poll(() => text.textContent()).toMatch(/^There were way3 (on )+$/);
  });

  test("a story goes on past the context: said once, and nothing of it is lost", async () => {
    const prompts: string[] = [];
    const answer = (prompt: string) => {
      prompts.push(prompt);
      return " and more";
    };
    const model = scriptedModel({ answer, contextSize: 60, chat: false });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    const box = page.getByLabel("Continue writing");
    const text = page.locator(".story-text");
    await box.fill(`Once ${"x".repeat(20)}`);
    await page.keyboard.press("Control+Enter");
    await expect.poll(() => text.textContent()).toBe(`Once ${"x".repeat(20)} and more`);
    const said = page.getByText("longer than this model's context (60 tokens)");
    await expect.poll(() => said.count()).toBe(0);
    await page.getByRole("button", { name: "Continue" }).waitFor();
    await box.fill("y".repeat(40));
    await page.keyboard.press("Control+Enter");
    await said.waitFor();
    await page.getByRole("button", { name: "Continue" }).click();
    const whole = `Once ${"x".repeat(20)} and more ${"y".repeat(40)} and more and more`;
    await expect.poll(() => text.textContent()).toBe(whole);
    await said.waitFor({ state: "detached" });
    await expect
      .poll(() => page.locator(".meter").innerText())
      .toContain("the beginning and the latest part");
    expect(prompts[2]).toMatch(/^Once x+y+ and more$/);
    await page.reload();
    await expect.poll(() => text.textContent()).toBe(whole);
  });

  test("what is typed while the model writes stays, with the focus in the box", async () => {
    const typed = Promise.withResolvers<void>();
    const model = scriptedModel({
      answer: () => " word".repeat(60),
      before: (said) => (said.includes("word word word") ? typed.promise : undefined),
      chat: false,
    });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    const box = page.getByLabel("Continue writing");
    const isFocused = () => box.evaluate((area) => document.activeElement === area);
    await expect.poll(() => isFocused()).toBe(true); // from the beginning
    await page.keyboard.type("It began");
    await page.keyboard.press("Control+Enter");
    await page.getByText("It began word word").waitFor();
    await page.keyboard.type("and then");
    expect(await isFocused()).toBe(true);
    typed.resolve();
    await page.getByRole("button", { name: "Continue" }).waitFor();
    await page.keyboard.type(" she");
    await expect.poll(() => box.inputValue()).toBe("and then she");
    // Also after a button was pressed instead of a key.
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("and then she word").waitFor();
    await page.keyboard.type("slept");
    await page.getByRole("button", { name: "Continue" }).waitFor();
    await expect.poll(() => box.inputValue()).toBe("slept");
    await page.reload();
    await page.getByText("and then she word").waitFor();
    await expect.poll(() => box.inputValue()).toBe("slept"); // a draft survives
    await page.getByRole("link", { name: "New story" }).click();
    await expect.poll(() => box.inputValue()).toBe(""); // another story has its own
    await page.goBack();
    await expect.poll(() => box.inputValue()).toBe("slept");
  });

  test("rewriting an early piece keeps the rest in sight, to go back to or to keep", async () => {
    let count = 0;
    const model = scriptedModel({ answer: () => ` piece ${++count}.`, chat: false });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    const text = page.locator(".story-text");
    await page.getByLabel("Continue writing").fill("It began.");
    for (const written of [1, 2]) {
      await page.getByRole("button", { name: "Continue" }).click();
      await page.getByText(`piece ${written}.`).waitFor();
      await page.getByRole("button", { name: "Continue" }).waitFor();
    }
    await page.locator(".piece").first().click();
    await page.getByRole("button", { name: "Rewrite" }).click();
    await page.getByLabel("Piece of the story").fill("It ended.");
    await page.getByRole("button", { name: "Keep", exact: true }).click();
    await expect.poll(() => text.textContent()).toBe("It ended.");
    const other = page.getByRole("complementary", { name: "The other version" });
    await expect
      .poll(() => other.locator("blockquote").innerText())
      .toBe("It began. piece 1. piece 2.");
    await expect.poll(() => other.innerText()).toContain("2 more pieces");
    await expect.poll(() => page.locator(".piece").getAttribute("data-versions")).toBe("2/2");
    await other.getByRole("button", { name: "Go to that version" }).click();
    await expect.poll(() => text.textContent()).toBe("It began. piece 1. piece 2.");
    await page.locator(".piece").first().click();
    await page.getByRole("button", { name: "Next version" }).click();
    await expect.poll(() => text.textContent()).toBe("It ended.");
    await other.getByRole("button", { name: "Move what came after it here" }).click();
    await expect.poll(() => text.textContent()).toBe("It ended. piece 1. piece 2.");
    await other.waitFor({ state: "detached" });
  });

  test("a model that has nothing to add leaves no empty piece, and that is said", async () => {
    const model = scriptedModel({ answer: () => "", chat: false });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    await page.getByLabel("Continue writing").fill("The end.");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("The model ended the story here").waitFor();
    await expect.poll(() => page.locator(".piece").allInnerTexts()).toEqual(["The end."]);
    await page.getByRole("button", { name: "3 alternatives" }).click();
    await page.getByRole("button", { name: "Continue" }).waitFor();
    await expect.poll(() => page.locator(".alternative").count()).toBe(0);
    await expect.poll(() => page.locator(".piece").allInnerTexts()).toEqual(["The end."]);
  });
});
