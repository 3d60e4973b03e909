// What can go wrong between a page and its server: reloads and restarts in the middle of an answer, a server that is
// gone, hostile text, the token and keys, a small screen. In a real browser, over real HTTP.
// Held against: the words of a scripted model.

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { describeBrowser } from "../browser/chromium.ts";
import { request } from "../server/lantern-client.ts";
import { heldAt, scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

const long = Array.from({ length: 60 }, (_, at) => `word${at}`).join(" ");
/** Says a third of it, and the rest when the test lets it. */
const slow = () => {
  const rest = Promise.withResolvers<void>();
  const before = (said: string) => (said.includes("word20") ? rest.promise : undefined);
  return { model: scriptedModel({ answer: () => long, before }), continueAnswer: rest.resolve };
};
const quick = () => scriptedModel({ answer: () => long });

describeBrowser("the web app", () => {
  const stage = useStage();

  test("a reload in the middle of an answer goes on with it", async () => {
    const { model, continueAnswer } = slow();
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    await say(page, "Count");
    await page.getByText("word10 ").waitFor();
    await page.reload();
    await page.getByText("word20").waitFor();
    await page.getByRole("button", { name: "Stop" }).waitFor();
    continueAnswer();
    expect(await answers(page)).toEqual([long]);
  });

  test("another tab follows the same answer, and leaving a page does not stop it", async () => {
    const { model, continueAnswer } = slow();
    const { url } = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(url);
    await say(page, "Count");
    await page.getByText("word5 ").waitFor();
    const other = await stage.page(page.url());
    await other.getByText("word5 ").waitFor();
    await page.getByRole("link", { name: "Limits" }).first().click();
    continueAnswer();
    expect(await answers(other)).toEqual([long]);
    await page.goBack();
    expect(await answers(page)).toEqual([long]);
  });

  test("a server that goes in the middle of an answer and comes back loses nothing", async () => {
    let asked = 0;
    const held = heldAt("word20");
    const model = scriptedModel({
      answer: () => {
        asked++;
        return long;
      },
      before: (said) => (asked === 2 ? held(said) : undefined),
    });
    const site = await stage.serve({ models: { scripted: model } });
    const page = await stage.page(site.url);
    await say(page, "First question");
    expect(await answers(page)).toEqual([long]);
    await say(page, "Second question");
    await page.locator(".answer").nth(1).getByText("word8 ").waitFor();
    await site.stop();
    await page.getByText("The server does not respond").waitFor();
    await site.startAgain({ models: { scripted: quick() } });
    await page.getByText("The server does not respond").waitFor({ state: "detached" });
    await page.getByText("Stopped. The text so far is kept.").waitFor();
    const [first, second] = await answers(page);
    expect(first).toBe(long);
    expect(long.startsWith(second!)).toBe(true);
    expect(second!.length).toBeGreaterThan(40);
    await expect
      .poll(() => page.locator(".bubble").allInnerTexts())
      .toEqual(["First question", "Second question"]);
    await page.reload();
    expect(await answers(page)).toEqual([first, second]);
    await say(page, "Third question");
    await expect.poll(() => answers(page)).toEqual([first, second, long]);
  });

  test("a message that could not be sent stays in the box", async () => {
    const site = await stage.serve({ models: { scripted: quick() } });
    const page = await stage.page(site.url);
    await site.stop();
    await page.getByLabel("Message", { exact: true }).fill("Anybody there?");
    await page.keyboard.press("Enter");
    await page.getByText("The server does not respond").waitFor();
    await expect
      .poll(() => page.getByLabel("Message", { exact: true }).inputValue())
      .toBe("Anybody there?");
    await site.startAgain();
    await page.getByText("The server does not respond").waitFor({ state: "detached" });
    await page.keyboard.press("Enter");
    await page.locator(".message:not(.pending) .bubble").waitFor();
    expect(await answers(page)).toEqual([long]);
  });

  test("hostile answers, titles and search hits stay text", async () => {
    const attacks = [
      "<script>window.hacked = 1</script>",
      '<img src=x onerror="window.hacked = 2">',
      "<svg><script>window.hacked = 3</script><animate onbegin=window.hacked=4 attributeName=x></svg>",
      "[click](javascript:window.hacked=5)",
      "[data](data:text/html,<script>window.hacked=6</script>)",
      '<a href="javascript:window.hacked=7" onclick="window.hacked=8">link</a>',
      "![picture](http://127.0.0.1:9/leak.png)",
      '<iframe srcdoc="<script>parent.hacked=9</script>"></iframe>',
      "<style>body { display: none }</style>",
      '<form action="http://127.0.0.1:9"><input name=x><button>Go</button></form>',
      '```html"><img src=x onerror=window.hacked=10>\n</code></pre><script>window.hacked=11</script>\n```',
      '[x]: <javascript:window.hacked=12> "t"\n\n[x]',
    ];
    const model = scriptedModel({ answer: () => attacks.join("\n\n") });
    const { url } = await stage.serve({ models: { scripted: model } });
    const base = `${url}/lantern/v1`;
    const title = `<img src=x onerror="window.hacked=20">${attacks[0]}`;
    const { id } = await request<{ id: string }>(
      `${base}/sessions`,
      "POST",
      { mode: "chat", title },
      201,
    );
    const page = await stage.page(`${url}/#/chat/${id}`);
    await say(page, `Hello ${attacks.join(" ")}`);
    await answers(page);
    await page.getByRole("searchbox").fill("onerror");
    await page.locator("mark").first().waitFor();
    await checkHarmless(page);
    await expect
      .poll(() => page.locator("h1").first().innerText())
      .toContain("<img src=x onerror=");
    for (const link of await page.locator(".answer a[href]").all()) {
      await expect.poll(() => link.getAttribute("href")).toMatch(/^https?:/);
      await expect.poll(() => link.getAttribute("rel")).toContain("noopener");
    }
    await page.reload();
    await answers(page);
    await checkHarmless(page);
    const policy = (await fetch(url)).headers.get("content-security-policy");
    expect(policy).toContain("script-src 'self'");
    expect(policy).not.toContain("unsafe-inline");
  });

  test("the printed link opens it, without the token in the address; the next visit needs no link", async () => {
    const { url, server } = await stage.serve({ models: { scripted: quick() }, token: "t0ken" });
    const page = await stage.page(`${server.pageUrl}#/chat`);
    await say(page, "Hello");
    expect(await answers(page)).toEqual([long]);
    expect(page.url()).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/#\/chat/);
    expect(await page.evaluate(() => document.cookie)).toBe(""); // scripts cannot read it
    await page.goBack().catch(() => null);
    expect(page.url()).not.toContain("t0ken");
    await page.goto(url);
    await page.getByText("What shall we talk about?").waitFor();
  });

  test("without the link it says where that is, and takes it", async () => {
    const site = await stage.serve({ models: { scripted: quick() }, token: "t0ken" });
    const page = await stage.page(site.url);
    await page.getByRole("heading", { name: "Open Lantern with its link" }).waitFor();
    const field = page.getByLabel("Link or token");
    await field.fill("http://127.0.0.1/?token=old");
    await page.getByRole("button", { name: "Open" }).click();
    await page.getByRole("alert").getByText("The token is wrong").waitFor();
    await field.fill(site.server.pageUrl);
    await page.getByRole("button", { name: "Open" }).click();
    await page.getByText("What shall we talk about?").waitFor();
    // Started again, it has another one.
    await site.stop();
    await site.startAgain({ models: { scripted: quick() }, token: "an0ther" });
    await page.getByRole("heading", { name: "Open Lantern with its link" }).waitFor();
  });

  test("with an admin key it asks for that", async () => {
    const { url } = await stage.serve({
      models: { scripted: quick() },
      adminKey: "master",
      apiKey: "k",
    });
    const page = await stage.page(url);
    await page.getByLabel("Admin key").fill("master");
    await page.getByRole("button", { name: "Open" }).click();
    await page.getByText("What shall we talk about?").waitFor();
    await say(page, "Hello");
    expect(await answers(page)).toEqual([long]);
  });

  test("a server with an API key asks for it once", async () => {
    const { url } = await stage.serve({ models: { scripted: quick() }, apiKey: "open sesame" });
    const page = await stage.page(url);
    await page.locator("input[type=password]").fill("open sesame");
    await page.getByRole("button", { name: "Use it" }).click();
    await page.getByText("What shall we talk about?").waitFor();
    await say(page, "Hello");
    expect(await answers(page)).toEqual([long]);
  });

  test.each([
    [360, "light"],
    [390, "dark"],
  ] as const)("no page is wider than a phone of %i pixels (%s)", async (width, colorScheme) => {
    const wide = `${"x".repeat(300)}\n\n\`\`\`\n${"y".repeat(300)}\n\`\`\`\n\n| ${"col | ".repeat(20)}\n|${"---|".repeat(20)}`;
    const model = scriptedModel({ answer: () => wide });
    const { url } = await stage.serve({ models: { ["m".repeat(60)]: model } });
    const phone = { viewport: { width, height: 740 }, hasTouch: true, colorScheme };
    const page = await stage.page(url, phone);
    await say(page, "z".repeat(300));
    await answers(page);
    await checkWidth(page, width);
    await page.getByRole("button", { name: "Conversations" }).click();
    await page.getByRole("link", { name: "New chat" }).waitFor();
    await checkWidth(page, width);
    for (const name of ["story", "machine", "limits", "models"]) {
      await page.goto(`${url}/#/${name}`);
      await expect.poll(() => page.title()).toMatch(new RegExp(name, "i"));
      await page.locator("h1:visible").waitFor();
      await checkWidth(page, width);
    }
  });

  test("the keyboard reaches everything, and the focus is seen", async () => {
    const { url } = await stage.serve({ models: { scripted: quick() } });
    const page = await stage.page(url);
    await say(page, "Hello");
    await answers(page);
    await page.locator("body").evaluate((body) => {
      (document.activeElement as HTMLElement | null)?.blur();
      body.scrollTo(0, 0);
    });
    const names = new Set<string>();
    for (let presses = 0; presses < 40; presses++) {
      await page.keyboard.press("Tab");
      const focus = await page.evaluate(() => {
        const element = document.activeElement as HTMLElement;
        const { outlineStyle, borderColor } = getComputedStyle(element);
        const inComposer = element.closest(".composer") !== null;
        const own = element.getAttribute("aria-label") ?? element.textContent?.trim() ?? "";
        const name = element === document.body ? "" : own; // past the last one
        return { name, seen: outlineStyle !== "none" || inComposer, borderColor };
      });
      if (focus.name !== "") expect(focus, focus.name).toMatchObject({ seen: true });
      names.add(focus.name);
    }
    for (const wanted of ["Story", "Models", "New chat", "Settings", "Model", "Message", "Edit"]) {
      expect([...names]).toContain(wanted);
    }
  });
});

async function checkHarmless(page: Page): Promise<void> {
  expect(await page.evaluate(() => (window as { hacked?: number }).hacked)).toBeUndefined();
  const bad = "#app :is(script, iframe, img, style, form:not(.composer), object, embed)";
  expect(await page.locator(bad).count()).toBe(0);
  const handlers = await page.evaluate(() =>
    [...document.querySelectorAll("#app *")].flatMap((element) =>
      element.getAttributeNames().filter((name) => name.startsWith("on") || name === "srcdoc"),
    ),
  );
  expect(handlers).toEqual([]);
  expect(await page.locator('a[href^="javascript:" i], a[href^="data:" i]').count()).toBe(0);
}

async function checkWidth(page: Page, width: number): Promise<void> {
  await expect
    .poll(() => page.evaluate(() => document.documentElement.scrollWidth), { message: page.url() })
    .toBeLessThanOrEqual(width);
}
