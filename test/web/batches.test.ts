// The Batches page in a real browser: a file is sent, watched and answered, its answers and errors are saved; a wrong file is refused
// with all that is wrong with it; a batch is cancelled; text of files and models never becomes markup.

import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import type { OutputLine } from "../../apps/batch/batch.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { scriptedModel } from "./scripted-model.ts";
import { useStage } from "./stage.ts";

const chat = "/v1/chat/completions";
const markup = "<img src=x onerror=alert(1)>";

interface Line {
  custom_id: string;
  method?: string;
  url?: string;
  body?: object;
}

const asked = (content: string, more: object = {}) => ({
  messages: [{ role: "user", content }],
  ...more,
});

function fileOf(name: string, lines: readonly (Line | string)[]) {
  const text = lines.map((line) =>
    typeof line === "string" ? line : JSON.stringify({ method: "POST", url: chat, ...line }),
  );
  return { name, mimeType: "application/jsonl", buffer: Buffer.from(text.join("\n")) };
}

async function send(page: Page, file: ReturnType<typeof fileOf>): Promise<void> {
  await page.getByLabel("File").setInputFiles(file);
  await page.getByRole("button", { name: "Start" }).click();
}

async function saved(page: Page, name: string): Promise<{ name: string; lines: OutputLine[] }> {
  const coming = page.waitForEvent("download");
  await page.getByRole("button", { name }).click();
  const download = await coming;
  const text = readFileSync(await download.path(), "utf8");
  const lines = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as OutputLine);
  return { name: download.suggestedFilename(), lines };
}

describeBrowser("the Batches page", () => {
  const stage = useStage();
  const open = async (answer: (prompt: string) => string, msPerPiece = 1) => {
    const model = scriptedModel({ answer, msPerPiece });
    const { url } = await stage.serve({ models: { scripted: model }, hasBatches: true });
    return await stage.page(`${url}/#/batches`);
  };

  test("sends a file, shows how far it is, and saves answers and errors", async () => {
    const page = await open((prompt) => `You said ${prompt.length} letters.`);
    const file = fileOf(`${markup}.jsonl`, [
      { custom_id: "a", body: asked("one") },
      { custom_id: "b", body: asked("two", { temperature: "hot" }) },
      { custom_id: "c", body: asked("three") },
    ]);
    await send(page, file);
    const card = page.getByRole("region", { name: markup });
    await card.getByText("Complete: 2 of 3 answered, 1 without an answer").waitFor();
    await expect.poll(() => card.getByRole("heading").innerText()).toBe(`${markup}.jsonl`);
    await card.getByText("tokens/s").waitFor();
    await card.getByText("the machine has not been measured").waitFor();
    expect(await page.locator("img").count()).toBe(0);

    const answers = await saved(page, "Save the answers of");
    expect(answers.name).toMatch(/-answers\.jsonl$/);
    expect(answers.lines.map(({ custom_id }) => custom_id)).toEqual(["a", "c"]);
    expect(answers.lines[0]!.response!.body).toMatchObject({
      choices: [{ message: { content: expect.stringMatching(/^You said \d+ letters\.$/) } }],
    });
    const errors = await saved(page, "Save the errors of");
    expect(errors.lines.map(({ custom_id }) => custom_id)).toEqual(["b"]);
    expect(errors.lines[0]!.response!.status_code).toBe(400);

    // It is there again after a reload, without another request.
    await page.reload();
    await card.getByText("Complete: 2 of 3 answered").waitFor();
  });

  test("a wrong file is refused with what is wrong", async () => {
    const page = await open(() => "never");
    await send(
      page,
      fileOf("wrong.jsonl", [
        { custom_id: "a", body: asked("one") },
        { custom_id: "a", body: asked("two") },
        `{"custom_id": "${markup}"`,
        { custom_id: "d", url: "/v1/embeddings", body: {} },
      ]),
    );
    const card = page.getByRole("region", { name: "wrong.jsonl" });
    await card.getByText("Not begun: the file is wrong").waitFor();
    await expect.poll(() => card.getByRole("listitem").count()).toBe(3);
    await card
      .getByText(/custom_id/)
      .first()
      .waitFor();
    await expect.poll(() => card.getByRole("button").count()).toBe(0);
    expect(await page.locator("img").count()).toBe(0);
  });

  test("a batch is cancelled; the route is that of the first line", async () => {
    const page = await open(() => "and so on ".repeat(2000), 20);
    const lines = Array.from({ length: 40 }, (_, i) => ({
      custom_id: `line ${i}`,
      url: "/v1/completions",
      body: { prompt: "Once", max_tokens: 5000 },
    }));
    await page.getByLabel("File").setInputFiles(fileOf("long.jsonl", lines));
    await expect
      .poll(() => page.getByLabel("Requests are for").inputValue())
      .toBe("/v1/completions");
    await page.getByRole("button", { name: "Start" }).click();
    const card = page.getByRole("region", { name: "long.jsonl" });
    await card.getByText("Answering: 0 of 40 answered").waitFor();
    await expect.poll(() => card.getByRole("progressbar").getAttribute("value")).toBe("0");
    await card.getByRole("button", { name: "Cancel" }).click();
    await card.getByText("Cancelled: 0 of 40 answered, 40 without an answer").waitFor();
    const errors = await saved(page, "Save the errors of long.jsonl");
    expect(errors.lines).toHaveLength(40);
  });

  test("a server without batches says so", async () => {
    const { url } = await stage.serve({
      models: { scripted: scriptedModel({ answer: () => "" }) },
    });
    const page = await stage.page(`${url}/#/batches`);
    await page.getByText("This server keeps no batches.").waitFor();
    await expect.poll(() => page.getByRole("button", { name: "Start" }).count()).toBe(0);
  });
});
