// Going about in the app: back to where one was, a second tab, search, drafts, titles of tabs, keys, presets, files.
// Held against: addresses, titles and texts written here.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { describeBrowser } from "../browser/chromium.ts";
import { request } from "../server/lantern-client.ts";
import { heldAt, scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

describeBrowser("going about in the web app", () => {
  const stage = useStage();
  let count = 0;
  const counting = () => scriptedModel({ answer: () => `Answer ${++count}.` });

  test("other pages lead back to the conversation and the place where one was", async () => {
    const long = Array.from({ length: 80 }, (_, at) => `Line ${at}.`).join("\n\n");
    const { url } = await stage.serve({
      models: { scripted: scriptedModel({ answer: () => long }) },
    });
    const page = await stage.page(url);
    await say(page, "Talk");
    await answers(page);
    await expect.poll(() => page.title()).toBe("Talk · Chat · Lantern");
    await page.getByLabel("Message", { exact: true }).fill("half a thought");
    const scroller = page.locator(".scroller");
    await scroller.evaluate((box) => box.scrollTo(0, 700));
    await page.getByRole("link", { name: "Limits", exact: true }).first().click();
    await page.locator("h1", { hasText: /limit/i }).first().waitFor();
    await expect.poll(() => page.title()).toBe("Limits · Lantern");
    await page.getByRole("link", { name: "Chat", exact: true }).first().click();
    await page.getByText("Line 10.").waitFor();
    await expect.poll(() => page.locator("h1").first().innerText()).toBe("Talk");
    await expect.poll(() => scroller.evaluate((box) => box.scrollTop)).toBe(700);
    await expect
      .poll(() => page.getByLabel("Message", { exact: true }).inputValue())
      .toBe("half a thought");
    // Also after a reload on another page.
    await page.getByRole("link", { name: "Models", exact: true }).first().click();
    await page.reload();
    await page.getByRole("link", { name: "Chat", exact: true }).first().click();
    await page.getByText("Line 10.").waitFor();
    await expect
      .poll(() => page.getByLabel("Message", { exact: true }).inputValue())
      .toBe("half a thought");
  });

  test("who writes while scrolled up is taken to the end, and kept there", async () => {
    const long = Array.from({ length: 80 }, (_, at) => `Line ${at}.`).join("\n\n");
    const { url } = await stage.serve({
      models: { scripted: scriptedModel({ answer: () => long }) },
    });
    const page = await stage.page(url);
    await say(page, "Talk");
    await answers(page);
    const scroller = page.locator(".scroller");
    const below = () =>
      scroller.evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight);
    await scroller.evaluate((box) => box.scrollTo(0, 300));
    await expect.poll(below).toBeGreaterThan(200);
    await say(page, Array(20).fill("More").join("\n"));
    await expect.poll(async () => (await answers(page)).length).toBe(2);
    await expect.poll(below).toBeLessThan(80);
    // A reader who scrolls up is left alone.
    await scroller.evaluate((box) => box.scrollTo(0, box.scrollTop - 400));
    await expect.poll(below).toBeGreaterThan(200);
  });

  test("a second tab follows what the first one does", async () => {
    count = 0;
    const { url } = await stage.serve({ models: { scripted: counting() } });
    const page = await stage.page(url);
    await say(page, "First");
    await answers(page);
    const other = await stage.page(page.url());
    await other.getByText("Answer 1.").waitFor();
    await say(page, "Second");
    await other.getByText("Answer 2.").waitFor();
    await page.getByRole("button", { name: "Answer again" }).last().click();
    await other.getByText("Answer 3.").waitFor();
    await expect.poll(() => other.locator(".branch-count").innerText()).toBe("2/2");
    await page.locator(".sessions li").first().hover();
    await page.getByRole("button", { name: "Delete First" }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await other.getByText("There is no such conversation here").waitFor();
    await expect.poll(() => other.locator(".sessions .title").count()).toBe(0);
  });

  test("search opens the version that matched", async () => {
    count = 0;
    const { url } = await stage.serve({ models: { scripted: counting() } });
    const page = await stage.page(url);
    await say(page, "Tell me");
    await answers(page);
    await page.getByRole("button", { name: "Answer again" }).click();
    await page.getByText("Answer 2.").waitFor();
    await say(page, "And then?");
    await answers(page);
    await page.getByRole("searchbox").fill("Answer 1");
    await page.locator(".hits a", { hasText: "Answer 1." }).click();
    await page.locator(".message.found", { hasText: "Answer 1." }).waitFor();
    expect(await answers(page)).toEqual(["Answer 1."]);
    expect(page.url()).toMatch(/#\/chat\/ses_\w+$/);
    await page.getByRole("searchbox").fill("And then");
    await page.locator(".hits a", { hasText: "And then?" }).click();
    await page.locator(".message.found", { hasText: "And then?" }).waitFor();
    expect(await answers(page)).toEqual(["Answer 2.", "Answer 3."]);
  });

  test("a message that is refused leaves no conversation behind, and stays in the box", async () => {
    const model = scriptedModel({ answer: () => "x", contextSize: 60 });
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    await page.getByLabel("Message", { exact: true }).fill("w".repeat(80));
    await page.keyboard.press("Enter");
    const notice = page.locator(".stage .notice", { hasText: /tokens.*holds 60/ });
    await notice.waitFor();
    await expect
      .poll(() => page.getByLabel("Message", { exact: true }).inputValue())
      .toBe("w".repeat(80));
    await expect.poll(() => page.getByText("Untitled").count()).toBe(0);
    expect(page.url()).toMatch(/#\/chat$/);
    const { sessions } = await request<{ sessions: unknown[] }>(`${url}/lantern/v1/sessions`);
    expect(sessions).toEqual([]);
    // The notice covers nothing: the page begins below it.
    const [above, below] = await Promise.all([
      notice.boundingBox(),
      page.locator("main").boundingBox(),
    ]);
    expect(above!.y + above!.height).toBeLessThanOrEqual(below!.y + 1);
    await page.getByLabel("Message", { exact: true }).fill("short");
    await page.keyboard.press("Enter");
    await page.locator(".message:not(.pending) .bubble", { hasText: "short" }).waitFor();
  });

  test("a stopped answer goes on where it was", async () => {
    const prompts: string[] = [];
    const answer = (prompt: string) => {
      prompts.push(prompt);
      return prompts.length === 1 ? "one ".repeat(300) : "and the rest.";
    };
    const { url } = await stage.serve({
      models: { scripted: scriptedModel({ answer, before: heldAt("one one one one") }) },
    });
    const page = await stage.page(url);
    await say(page, "Count");
    await page.getByText("one one one").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("Stopped.").waitFor();
    await answers(page);
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("and the rest.").waitFor();
    const [text] = await answers(page);
    expect(text).toMatch(/^(one )+and the rest\.$/);
    expect(prompts[1]).toMatch(/^<user>Count\n(one )+$/);
    await expect.poll(() => page.locator(".message.assistant").count()).toBe(1);
    await expect.poll(() => page.getByRole("button", { name: "Continue" }).count()).toBe(0);
  });

  test("keys do what buttons do, outside of text boxes, and ? lists them", async () => {
    count = 0;
    const { url } = await stage.serve({ models: { scripted: counting() } });
    const page = await stage.page(url);
    /** A page that is opened puts the focus into its box. */
    const leave = async (label: string) => {
      const box = page.getByLabel(label, { exact: true });
      await expect.poll(() => box.evaluate((area) => document.activeElement === area)).toBe(true);
      await page.keyboard.press("Escape");
    };
    const box = page.getByLabel("Message", { exact: true });
    await expect.poll(() => box.evaluate((area) => document.activeElement === area)).toBe(true);
    await page.keyboard.type("Why? n/1"); // in the box they are letters
    await expect
      .poll(() => page.getByLabel("Message", { exact: true }).inputValue())
      .toBe("Why? n/1");
    await page.keyboard.press("Enter");
    await answers(page);
    await page.keyboard.press("Escape"); // leaves the box
    await page.keyboard.press("r");
    await page.getByText("Answer 2.").waitFor();
    await answers(page);
    await page.keyboard.press("e");
    await page.getByLabel("Edit your message").waitFor();
    await page.keyboard.press("Escape");
    await page.locator("h1").first().click();
    await page.keyboard.press("/");
    await expect
      .poll(() => page.evaluate(() => (document.activeElement as HTMLInputElement).type))
      .toBe("search");
    await page.keyboard.press("Escape");
    await page.keyboard.press("2");
    await leave("Continue writing");
    await page.keyboard.press("1");
    await page.getByText("Answer 2.").waitFor();
    await leave("Message");
    await page.keyboard.press("n");
    await page.getByText("What shall we talk about?").waitFor();
    await page.keyboard.press("?");
    const list = page.getByRole("dialog", { name: "Keyboard shortcuts" });
    await expect.poll(() => list.innerText()).toContain("Answer again");
    await list.getByLabel("Use the keys outside text boxes").uncheck();
    await page.keyboard.press("Escape");
    await page.keyboard.press("2");
    await page.keyboard.press("?");
    expect(page.url()).toMatch(/#\/chat$/);
    await expect.poll(() => list.count()).toBe(0);
  });

  test("presets are saved on the server and used in another chat", async () => {
    const seen: string[] = [];
    const answer = (prompt: string) => {
      seen.push(prompt);
      return "Yes.";
    };
    const { url } = await stage.serve({ models: { scripted: scriptedModel({ answer }) } });
    const page = await stage.page(url);
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByRole("dialog").getByLabel("System prompt").fill("Speak like a pirate");
    await page.getByRole("dialog").getByLabel("Temperature").fill("1.5");
    await page.getByRole("button", { name: "Save these settings…" }).click();
    await page.getByLabel("Name of the preset").fill("Pirate & co/1");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Delete “Pirate & co/1”" }).waitFor();
    await expect
      .poll(() => page.getByLabel("Preset", { exact: true }).inputValue())
      .toBe("Pirate & co/1");

    const other = await stage.page(url); // another browser
    await other.getByRole("button", { name: "Settings" }).click();
    await other.getByLabel("Preset", { exact: true }).selectOption("Pirate & co/1");
    await expect
      .poll(() => other.getByRole("dialog").getByLabel("System prompt").inputValue())
      .toBe("Speak like a pirate");
    await other.getByRole("button", { name: "Close" }).first().click();
    await say(other, "Hello");
    await answers(other);
    expect(seen[0]).toContain("<system>Speak like a pirate");
    await page.getByRole("button", { name: "Delete “Pirate & co/1”" }).click();
    await expect.poll(() => request(`${url}/lantern/v1/presets`)).toEqual({ presets: [] });
  });

  test("everything is exported as one file, and imported elsewhere", async () => {
    count = 0;
    const { url } = await stage.serve({ models: { scripted: counting() } });
    const page = await stage.page(url);
    for (const text of ["Apples", "Boats"]) {
      await page.getByRole("link", { name: "New chat" }).click();
      await say(page, text);
      await answers(page);
    }
    await request(`${url}/lantern/v1/presets/Calm`, "PUT", { settings: { temperature: 0.1 } });
    await page.getByRole("button", { name: "Export and import" }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Save all chats, stories and presets" }).click(),
    ]);
    expect(download.suggestedFilename()).toMatch(/^lantern-\d{4}-\d\d-\d\d\.json$/);
    const file = readFileSync(await download.path());

    const elsewhere = await stage.serve({ models: { scripted: counting() } });
    const other = await stage.page(elsewhere.url);
    const bring = async () => {
      await other.getByRole("button", { name: "Export and import" }).click();
      const all = { name: "all.json", mimeType: "application/json", buffer: file };
      await other.getByLabel("Import conversations").setInputFiles(all);
    };
    await bring();
    await other.getByText("Imported 2 conversations.").waitFor();
    const titles = other.locator(".sidebar .sessions .title");
    expect((await titles.allInnerTexts()).sort()).toEqual(["Apples", "Boats"]);
    const { presets } = await request<{ presets: unknown }>(`${elsewhere.url}/lantern/v1/presets`);
    expect(presets).toEqual([{ name: "Calm", settings: { temperature: 0.1 } }]);
    await bring();
    await other.getByText("Imported 0 conversations; 2 were here already.").waitFor();
    await expect.poll(() => titles.count()).toBe(2);
  });

  test("text files go along with a message; others are refused by name", async () => {
    const prompts: string[] = [];
    const answer = (prompt: string) => {
      prompts.push(prompt);
      return "Read.";
    };
    const { url } = await stage.serve({ models: { scripted: scriptedModel({ answer }) } });
    const page = await stage.page(url);
    const picker = page.locator("input[type=file]");
    const notes = { name: "notes.md", mimeType: "", buffer: Buffer.from("# Hi\n```js\n1\n```\n") };
    const picture = { name: "cat.png", mimeType: "", buffer: Buffer.from([137, 80, 0, 255]) };
    await picker.setInputFiles([notes, picture]);
    await page.getByText("cat.png is not a text file.").first().waitFor();
    await page.getByLabel("Attached files").getByText("notes.md").waitFor();
    // Dropped anywhere on the page, a file is attached, too.
    await page.locator(".scroller").evaluate((target) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["a,b\n1,2"], "table.csv"));
      const facts = { dataTransfer, bubbles: true, cancelable: true };
      target.dispatchEvent(new DragEvent("dragover", facts));
      target.dispatchEvent(new DragEvent("drop", facts));
    });
    await page.getByRole("button", { name: "Remove table.csv" }).click();
    await page.reload(); // a draft has its files
    await page.getByLabel("Attached files").getByText("notes.md").waitFor();
    await page.getByLabel("Message", { exact: true }).fill("Look");
    await page.keyboard.press("Enter");
    await answers(page);
    expect(prompts[0]).toBe("<user>Look\n\nFile: notes.md\n````\n# Hi\n```js\n1\n```\n````\n");
    await expect.poll(() => page.locator(".bubble").innerText()).toBe("Look");
    await page.locator(".attached summary", { hasText: "notes.md" }).click();
    await expect.poll(() => page.locator(".attached pre").innerText()).toBe("# Hi\n```js\n1\n```");
    await expect.poll(() => page.getByLabel("Attached files").count()).toBe(0);
  });
});
