// The Story page in a real browser, with the model that comes with the package: writing together, undoing, alternatives.

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
    await page.getByLabel("Write on").fill("Once upon a time");
    await page.getByLabel("Temperature").fill("0");
    await page.getByLabel("Length").fill("10");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Continue" }).click();
    const text = page.locator(".story-text");
    await expect.poll(() => text.textContent()).toMatch(/^Once upon a time, there was a/);
    await page.getByRole("button", { name: "Continue" }).waitFor();
    expect(await page.locator(".piece").count()).toBe(2);
    expect(await page.locator(".meter").innerText()).toMatch(/of 256 tokens of context/);
    expect(await page.locator("h1").innerText()).toBe("Once upon a time");
  });

  test("alternatives side by side, one chosen; undo, redo, rewrite, other versions", async () => {
    let count = 0;
    const model = scriptedModel({ answer: () => ` piece ${++count}.`, chat: false });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    const text = page.locator(".story-text");
    await page.getByLabel("Write on").fill("It began.  ");
    await page.keyboard.press("Control+Enter");
    await expect.poll(() => text.textContent()).toBe("It began. piece 1.");
    await page.getByRole("button", { name: "Continue" }).waitFor();
    await page.getByLabel("Write on").fill("Then I wrote");
    await page.getByRole("button", { name: "3 alternatives" }).click();
    await page.getByText("piece 4.").waitFor();
    expect(await page.locator(".alternative").count()).toBe(3);
    expect(await text.textContent()).toBe("It began. piece 1. Then I wrote");
    await page.getByRole("button", { name: "Go on with 2" }).click();
    const whole = "It began. piece 1. Then I wrote piece 3.";
    await expect.poll(() => text.textContent()).toBe(whole);

    await page.getByRole("button", { name: "Undo" }).click();
    await expect.poll(() => text.textContent()).toBe("It began. piece 1. Then I wrote");
    await page.getByRole("button", { name: "Undo" }).click();
    await expect.poll(() => text.textContent()).toBe("It began. piece 1.");
    await page.getByRole("button", { name: "Redo" }).click();
    await page.getByRole("button", { name: "Redo" }).click();
    await expect.poll(() => text.textContent()).toBe(whole);

    await page.locator(".piece").last().click();
    expect(await page.locator(".branch-count").innerText()).toBe("2/3");
    await page.getByRole("button", { name: "Version after" }).click();
    await expect.poll(() => text.textContent()).toBe(whole.replace("piece 3", "piece 4"));

    await page.locator(".piece").first().click();
    await page.getByRole("button", { name: "Rewrite" }).click();
    await page.getByLabel("Piece of the story").fill("It ended.");
    await page.getByRole("button", { name: "Keep" }).click();
    await expect.poll(() => text.textContent()).toBe("It ended.");
    await page.reload(); // the text is the server's
    await expect.poll(() => text.textContent()).toBe("It ended.");
  });

  test("alternatives that are still being written stand side by side after a reload", async () => {
    let count = 0;
    const answer = () => ` way${++count} ${"on ".repeat(60)}`;
    const model = scriptedModel({ answer, msPerPiece: 25, chat: false });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    await page.getByLabel("Length").fill("400");
    await page.getByLabel("Write on").fill("There were");
    await page.getByRole("button", { name: "3 alternatives" }).click();
    await page.getByText("way3 on").waitFor();
    await page.reload();
    await page.getByText("way3 on").waitFor();
    expect(await page.locator(".alternative").count()).toBe(3);
    await page.getByRole("button", { name: "Go on with 3" }).click();
    const text = page.locator(".story-text");
    await expect.poll(() => text.textContent()).toMatch(/^There were way3 (on )+$/);
  });

  test("a full context is said, and nothing is cut", async () => {
    const model = scriptedModel({ answer: () => "more ".repeat(9), contextSize: 60, chat: false });
    const { url } = await stage.serve({ models: { writer: model } });
    const page = await stage.page(url);
    await page.getByLabel("Write on").fill("x".repeat(70));
    await page.getByRole("button", { name: "Continue" }).click();
    await page.locator(".notice", { hasText: /70 tokens.*holds 60/ }).waitFor();
    expect(await page.getByLabel("Write on").inputValue()).toBe("x".repeat(70));
  });
});
