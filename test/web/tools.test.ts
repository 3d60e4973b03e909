// Reasoning, tools and their calls on the Chat page: folded, streamed and kept; cards that ask for a result; the panel in
// which tools are added.
// Held against: the words of a scripted model.

import { expect, test } from "vitest";
import { AbortedError } from "../../src/index.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { marked } from "../chat/json-format.ts";
import { scriptedModel } from "./scripted-model.ts";
import { answers, type ServeOptions, say, useStage } from "./stage.ts";

const call = (name: string, values: object): string =>
  `<call>${JSON.stringify({ name, arguments: values })}</call>`;

describeBrowser("answers of more than text", () => {
  const stage = useStage();

  test("fold reasoning with what it cost, also after a reload, and copy only the answer", async () => {
    const enough = Promise.withResolvers<void>();
    const model = scriptedModel({
      answer: () => `<think>${"*hm* ".repeat(40)}</think>Done.`,
      before: (said) => (said.includes("*hm* *hm* ") ? enough.promise : undefined),
      msPerPiece: 5, // what it cost is not nothing
      format: marked,
    });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    await say(page, "Think");
    await page.getByText("Thinking…").waitFor();
    expect(await page.locator(".answer .markdown").count()).toBe(0);
    enough.resolve();
    expect(await answers(page)).toEqual(["Done."]);
    const summary = page.locator("details.thought summary");
    const cost = /^Reasoning: [\d.]+ m?s, \d+ tokens$/;
    await expect.poll(() => summary.innerText()).toMatch(cost);
    await page.reload();
    expect(await answers(page)).toEqual(["Done."]);
    await expect.poll(() => summary.innerText()).toMatch(cost);
    await summary.click();
    await expect.poll(() => page.locator("details.thought em").count()).toBe(40);
  });

  test("show calls as cards, which are answered or refused before the chat goes on", async () => {
    const asked: string[] = [];
    const second = Promise.withResolvers<void>();
    const replies = [
      `Let me see.${call("get_weather", { city: "Ulm" })}${call("look_up", { words: "<b>Ulm" })}`,
      "It is sunny in Ulm.",
    ];
    const model = scriptedModel({
      answer: (prompt) => {
        asked.push(prompt);
        return replies[asked.length - 1]!;
      },
      before: (said) => (said.includes("look_up") ? second.promise : undefined),
      format: marked,
    });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);

    await page.getByRole("button", { name: "Tools" }).click();
    const panel = page.getByRole("dialog");
    await panel.getByRole("button", { name: "Example: look_up" }).click();
    await panel.getByRole("button", { name: "Add", exact: true }).click();
    await panel.getByRole("button", { name: "Add a tool" }).click();
    const add = panel.getByRole("button", { name: "Add", exact: true });
    await panel.getByLabel("Name").fill("look_up");
    await panel.getByText("Another tool has this name.").waitFor();
    await panel.getByLabel("Name").fill("get_weather");
    const schema = panel.getByLabel("Arguments");
    await schema.fill('{ "type": "object", ');
    await panel.getByText("This is not JSON").waitFor();
    await schema.fill('{ "properties": { "city": { "type": "strong" } } }');
    await panel.getByText(/type.*properties\/city/).waitFor();
    await expect.poll(() => add.isDisabled()).toBe(true);
    await schema.fill('{ "properties": { "city": { "type": "string" } } }');
    await expect.poll(() => add.isDisabled()).toBe(false);
    await add.click();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Tools: 2" }).waitFor();

    await say(page, "Weather?");
    const card = page.getByRole("article", { name: "Call of get_weather" });
    const message = page.getByLabel("Message", { exact: true });
    // The first call is complete, the second is not: there is nothing to answer before the whole answer is there.
    await card.getByText("waits for the end of the answer").waitFor();
    await page
      .getByRole("article", { name: "Call of look_up" })
      .getByText("being written")
      .waitFor();
    expect(await page.getByLabel("Result").count()).toBe(0);
    expect(await message.isDisabled()).toBe(false); // the next message can be drafted
    second.resolve();
    await card.getByText("waits for your result").waitFor();
    expect(await message.isDisabled()).toBe(true); // set in the same render as the card
    await expect.poll(() => card.locator("pre").innerText()).toBe('{\n  "city": "Ulm"\n}');
    await page.reload(); // everything is on the server
    await card.getByLabel("Result").fill("sunny");
    await page.keyboard.press("Control+Enter");
    await card.getByText("done").waitFor();
    expect(asked).toHaveLength(1); // the other one waits
    const other = page.getByRole("article", { name: "Call of look_up" });
    await expect.poll(() => other.locator("pre").innerText()).toContain("<b>Ulm");
    await other.getByRole("button", { name: "Refuse" }).click();
    await page.getByText("It is sunny in Ulm.").waitFor();
    await answers(page);
    expect(asked[1]).toBe(
      "<user>Weather?\n<assistant>Let me see.\n<tool>sunny\n<tool>The user refused this call.\n",
    );
    await expect.poll(() => other.locator(".call-state").innerText()).toBe("refused");
    await card.getByText("Result").click();
    await expect.poll(() => card.locator("details pre").innerText()).toBe("sunny");
    const again = page.locator(".message").last().getByRole("button", { name: "Answer again" });
    replies.push("Sunny, as I said.");
    await again.click();
    await page.getByText("Sunny, as I said.").waitFor();
    expect(asked[2]).toBe(asked[1]);
  });

  test("run a tool of a server only after the person has confirmed it", async () => {
    const replies = [
      call("files_list", { folder: "." }),
      "One file.",
      call("files_list", {}),
      "Ok.",
    ];
    const model = scriptedModel({ answer: () => replies.shift()!, format: marked });
    const ran: unknown[] = [];
    const tools: ServeOptions["tools"] = {
      servers: [
        { name: "files", status: "ready" },
        { name: "mail", status: "failed", problem: "mail: it ended with code 1" },
      ],
      tools: [
        {
          name: "files_list",
          server: "files",
          description: "Lists a folder.",
          schema: { type: "object" },
        },
      ],
      async call(name, args, { signal }) {
        ran.push([name, args]);
        if (ran.length === 1) return { text: "a.txt", isError: false };
        const stopped = Promise.withResolvers<never>();
        signal.addEventListener("abort", () => stopped.reject(new AbortedError("the call")));
        return await stopped.promise;
      },
    };
    const { url } = await stage.serve({ models: { scripted: model }, tools });
    const page = await stage.page(url);
    await page.getByRole("button", { name: "Tools" }).click();
    await page.getByText("mail: it ended with code 1").waitFor();
    await page.getByLabel("files_list").check();
    await page.keyboard.press("Escape");
    await say(page, "Which files?");
    const card = page.getByRole("article", { name: "Call of files_list" });
    await card.first().getByText("waits for your confirmation").waitFor();
    expect(ran).toEqual([]);
    await card.first().getByRole("button", { name: "Run it" }).click();
    await page.getByText("One file.").waitFor();
    expect(ran).toEqual([["files_list", { folder: "." }]]);
    await expect.poll(() => card.first().innerText()).toContain("run by files");
    await answers(page);

    await say(page, "And now?");
    await card.nth(1).getByRole("button", { name: "Run it" }).click();
    await card.last().getByText("running").waitFor();
    await card.last().getByRole("button", { name: "Stop the tool" }).click();
    await page.getByText("Ok.").waitFor();
    await expect.poll(() => card.last().locator(".call-state").innerText()).toBe("failed");
  });

  test("are JSON by a schema, which is checked as it is typed", async () => {
    const wanted: unknown[] = [];
    const model = scriptedModel({
      answer: (_, { grammar }) => {
        wanted.push(grammar);
        return '{"name":"Ada","tags":["a"]}';
      },
    });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    await page.getByRole("button", { name: "JSON" }).click();
    await page.getByText("Answers are free.").waitFor();
    await page.getByRole("button", { name: "Example: Facts" }).click();
    await page.getByText("Answers follow this schema.").waitFor();
    const box = page.getByRole("dialog").getByLabel("JSON Schema");
    await box.fill('{ "properties": { "name": { "extends": {} } } }');
    await page.getByText(/#\/properties\/name.*extends/).waitFor();
    await page.getByText("Answers follow the last schema that was complete.").waitFor();
    await box.fill('{ "type": "object" }');
    await page.getByText("Answers follow this schema.").waitFor();
    await page.keyboard.press("Escape");
    await say(page, "Who?");
    await answers(page);
    expect(wanted).toEqual([{ schema: { type: "object" } }]);
    const code = page.locator(".answer .code");
    await expect
      .poll(() => code.locator("pre").innerText())
      .toBe('{\n  "name": "Ada",\n  "tags": [\n    "a"\n  ]\n}');
    await code.getByRole("button", { name: "Copy code" }).waitFor();
  });

  test("settings are of one chat: the next begins clean, and what it begins with is shown with an x", async () => {
    const wanted: unknown[] = [];
    const model = scriptedModel({
      answer: (prompt, { grammar, temperature }) => {
        const schema = grammar && typeof grammar === "object" ? Object(grammar).schema : undefined;
        wanted.push([prompt.includes("pirate"), schema, temperature]);
        return "{}";
      },
    });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    const dialog = page.getByRole("dialog");
    const none = page.getByRole("button", { name: "JSON", exact: true });
    const remove = (what: string) => page.getByRole("button", { name: `Remove: ${what}` });
    const set = async (schema: string) => {
      await page.getByRole("button", { name: /^JSON/ }).click();
      await dialog.getByLabel("JSON Schema").fill(schema);
      await dialog.getByText("Answers follow this schema.").waitFor();
      await page.keyboard.press("Escape");
    };
    const next = async (text: string) => {
      await page.getByRole("link", { name: "New chat" }).click();
      await none.waitFor();
      await say(page, text);
      await answers(page);
    };
    await set('{ "type": "object" }');
    await page.getByRole("button", { name: "Settings" }).click();
    await dialog.getByLabel("System prompt").fill("Speak like a pirate");
    await dialog.getByLabel("Temperature").fill("1.5");
    await page.keyboard.press("Escape");
    await page.reload(); // the next chat's settings are kept like its text, and can be removed one by one
    await page.locator(".removable", { hasText: "System prompt" }).waitFor();
    await page.getByText("Temperature: 1.5").waitFor();
    await remove("JSON schema").waitFor();
    await remove("System prompt").click();
    await remove("System prompt").waitFor({ state: "detached" });
    await say(page, "One");
    await answers(page);
    await next("Two");
    await set('{ "type": "array" }'); // in a chat that is there
    await say(page, "Three");
    await expect.poll(() => wanted.length).toBe(3);
    await answers(page);
    await page.reload();
    await remove("JSON schema").click(); // of this chat
    await remove("JSON schema").waitFor({ state: "detached" });
    await say(page, "Free again");
    await expect.poll(() => wanted.length).toBe(4);
    await answers(page);
    await set('{ "type": "array" }');
    await remove("JSON schema").waitFor();
    await page.getByRole("link", { name: "New chat" }).click();
    await page.reload();
    await none.waitFor();
    await next("Four");
    expect(wanted).toEqual([
      [false, { type: "object" }, 1.5],
      [false, undefined, 0.7],
      [false, { type: "array" }, 0.7],
      [false, undefined, 0.7], // without what was removed
      [false, undefined, 0.7],
    ]);
  });
});
