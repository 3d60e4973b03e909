// A page that was left open while what it shows goes: deleted elsewhere, another server, errors. It asks a few times, says what it is, and has
// a way on. How often it asks is counted against its own heartbeats, not against a clock.

import type { Page, Request } from "playwright-core";
import { expect, test } from "vitest";
import { describeBrowser } from "../browser/chromium.ts";
import { request } from "../server/lantern-client.ts";
import { wire } from "./front.ts";
import { heldAt, scriptedModel } from "./scripted-model.ts";
import { answers, type Site, say, useStage } from "./stage.ts";

const long = Array.from({ length: 60 }, (_, at) => `word${at}`).join(" ");
const held = () => scriptedModel({ answer: () => long, before: heldAt("word20") });
const quick = () => scriptedModel({ answer: () => long });
type Mode = "chat" | "story";

/** Counts what a page asks for from now on. */
function counting(page: Page) {
  const asked: string[] = [];
  const open = new Set<Request>();
  page.on("request", (one) => {
    asked.push(new URL(one.url()).pathname);
    open.add(one);
  });
  for (const end of ["requestfinished", "requestfailed"] as const) {
    page.on(end as "requestfinished", (one) => open.delete(one));
  }
  const count = (path: RegExp): number => asked.filter((one) => path.test(one)).length;
  return {
    count,
    /**
     * Stops the page's timers, and waits for the answers of what it has asked for: from now on it asks for `path` only where it is
     * told to. Needs `page.clock.install()` before the page was loaded. A button that the page's own retry would take away stays.
     */
    async pause(path: RegExp): Promise<void> {
      await page.clock.pauseAt((await page.evaluate(() => Date.now())) + 60_000);
      const pending = () => [...open].filter((one) => path.test(new URL(one.url()).pathname));
      await expect.poll(() => pending().length).toBe(0);
    },
    /** Presses a button of a page whose timers are stopped: it asks at once. Then they run again. */
    async press(name: string, path: RegExp): Promise<void> {
      const before = count(path);
      await page.getByRole("button", { name }).click();
      await expect.poll(() => count(path)).toBeGreaterThan(before);
      await page.clock.resume();
    },
    /** Until the page has looked at the list so many times more. */
    async heartbeats(wanted: number): Promise<void> {
      const from = count(/sessions$/);
      await expect
        .poll(() => count(/sessions$/), { timeout: 120_000 })
        .toBeGreaterThanOrEqual(from + wanted);
    },
  };
}

async function begin(page: Page, mode: Mode): Promise<string> {
  if (mode === "chat") {
    await say(page, "Count");
  } else {
    await page.getByLabel("Continue writing").fill("Once");
    await page.getByRole("button", { name: "Continue", exact: true }).click();
  }
  await page.getByText("word10 ").waitFor();
  await page.waitForURL(/ses_/);
  return /ses_[^/]+/.exec(page.url())![0];
}

const remove = (site: Site, id: string) =>
  request(`${site.url}/lantern/v1/sessions/${id}`, "DELETE");

describeBrowser("a page whose conversation is gone", () => {
  const stage = useStage();

  test.each(["chat", "story"] as const)(
    "a %s that is deleted elsewhere while its answer is written",
    async (mode) => {
      const site = await stage.serve({ models: { scripted: held() } });
      const page = await stage.page(`${site.url}/#/${mode}`);
      const id = await begin(page, mode);
      const asked = counting(page);
      await remove(site, id);
      await page.getByText(/There is no such (conversation|story) here/).waitFor();
      await asked.heartbeats(3);
      expect(asked.count(/messages$/)).toBeLessThan(8);
      expect(asked.count(/events$/)).toBeLessThan(8);
      expect(await page.getByRole("button", { name: "Stop" }).count()).toBe(0);
      expect(await page.getByText("tokens/s").count()).toBe(0);
      // And on with another one.
      await page
        .getByRole("link", { name: mode === "chat" ? "New chat" : "New story" })
        .first()
        .click();
      await page
        .getByText(mode === "chat" ? "What shall we talk about?" : "Write the first words")
        .waitFor();
      const next = await begin(page, mode);
      expect(next).not.toBe(id);
    },
  );

  test.each(["chat", "story"] as const)(
    "a %s that is deleted elsewhere while nothing is written",
    async (mode) => {
      const site = await stage.serve({ models: { scripted: quick() } });
      const page = await stage.page(`${site.url}/#/${mode}`);
      const id = await begin(page, mode);
      await page.getByText("word30").waitFor();
      await remove(site, id);
      await page.getByText(/There is no such (conversation|story) here/).waitFor();
      await page.getByRole("link", { name: `Begin a new ${mode}` }).click();
      await page
        .getByText(mode === "chat" ? "What shall we talk about?" : "Write the first words")
        .waitFor();
    },
  );

  test("an address of a conversation that never was", async () => {
    const site = await stage.serve({ models: { scripted: quick() } });
    const page = await stage.page(`${site.url}/#/chat/ses_none`);
    await page.getByText("There is no such conversation here").waitFor();
    await page.getByRole("link", { name: "New chat" }).first().click();
    await say(page, "Hello");
    expect(await answers(page)).toEqual([long]);
  });
});

describeBrowser("a page whose server is another one", () => {
  const stage = useStage();

  test("a server that is killed in the middle of an answer and started with another token", async () => {
    const site = await stage.serve({ models: { scripted: held() }, token: "t0ken" });
    await using cable = await wire(site.url);
    const page = await stage.page(`${cable.url}/?token=t0ken#/chat`);
    await begin(page, "chat");
    cable.cut();
    await page.getByText("The server does not respond").waitFor();
    await site.stop();
    await site.startAgain({ models: { scripted: quick() }, token: "an0ther" });
    cable.mend();
    await page.getByRole("heading", { name: "Open Lantern with its link" }).waitFor();
    const asked = counting(page);
    await asked.heartbeats(3);
    expect(asked.count(/lantern/)).toBeLessThan(8);
    expect(asked.count(/events$|messages$/)).toBe(0);
    // The link is opened in another tab: this one notices.
    const other = await page.context().newPage();
    await other.goto(`${cable.url}/?token=an0ther`);
    await page.getByText("word20").waitFor();
    await page.getByText("Stopped. The text so far is kept.").waitFor();
  });

  test("while the server is away it is asked less and less often, and at once on demand", async () => {
    const site = await stage.serve({ models: { scripted: held() } });
    const page = await stage.page(`${site.url}/#/chat`);
    await begin(page, "chat");
    await page.clock.install();
    await page.reload(); // whose timers are the clock's
    await page.getByText("word10 ").waitFor();
    await site.stop();
    await page.clock.runFor(3000);
    await page.getByText("The server does not respond").waitFor();
    const asked = counting(page);
    for (let second = 0; second < 120; second++) await page.clock.runFor(1000);
    expect(asked.count(/./)).toBeLessThan(40); // 120 at one a second
    await asked.pause(/./);
    await site.startAgain({ models: { scripted: quick() } });
    await asked.press("Try now", /./);
    await page.getByText("The server does not respond").waitFor({ state: "detached" });
  });

  test("an answer that cannot be followed says why, and is followed when asked again", async () => {
    const site = await stage.serve({ models: { scripted: held() } });
    const page = await stage.page(`${site.url}/#/chat`);
    await begin(page, "chat");
    const error = { message: "the disk is full", type: "server_error", param: null, code: "x" };
    await page.route(/\/events$/, (route) => route.fulfill({ status: 500, json: { error } }));
    const asked = counting(page);
    await page.clock.install();
    await page.reload();
    await page.getByRole("alert").getByText("The disk is full").waitFor();
    await asked.heartbeats(2);
    expect(asked.count(/events$/)).toBeLessThan(8);
    await asked.pause(/events$/);
    await page.unroute(/\/events$/);
    await asked.press("Try again", /events$/);
    await page.getByRole("button", { name: "Stop" }).waitFor();
    await page.getByText("word20").waitFor();
    expect(await page.getByRole("alert").count()).toBe(0);
  });

  test("a list that cannot be read is read when it can be again", async () => {
    const site = await stage.serve({ models: { scripted: quick() } });
    const page = await stage.page(`${site.url}/#/chat`);
    const error = { message: "the disk is full", type: "server_error", param: null, code: "x" };
    await page.route(/\/sessions\?/, (route) => route.fulfill({ status: 507, json: { error } }));
    await page.getByText("The disk is full").waitFor();
    await page.unroute(/\/sessions\?/);
    await page.getByText("No chats yet.").waitFor();
  });

  const batch = {
    ...{ id: "batch_1", object: "batch", endpoint: "/v1/chat/completions", input_file_id: "f" },
    ...{ status: "in_progress", output_file_id: null, error_file_id: null, errors: null },
    ...{ created_at: 1, in_progress_at: 1, expires_at: 99_999_999_999, completed_at: null },
    ...{ cancelled_at: null, expired_at: null },
    request_counts: { total: 10, completed: 1, failed: 0 },
    usage: { input_tokens: 1, output_tokens: 1, input_tokens_details: { cached_tokens: 0 } },
  };
  const job = {
    model: "m",
    type: "Q4_K_M",
    phase: "Reading it",
    share: 0.3,
    error: null,
    report: null,
  };
  const machine = {
    machine: null,
    measuring: { share: 0.2, error: null },
    models: [],
    tune: null,
    tuneNote: null,
  };

  test.each([
    ["quantize", /v1\/quantize$/, { types: ["Q4_K_M"], job }, "Reading it"],
    ["machine", /v1\/machine$/, machine, "Measuring…"],
    ["batches", /v1\/batches$/, { object: "list", has_more: false, data: [batch] }, "Answering"],
    ["models", /v1\/models$/, undefined, "Loaded"],
  ])("%s: what runs there cannot be read any more", async (name, path, busy, sign) => {
    const site = await stage.serve({ models: { scripted: quick() }, hasBatches: true });
    const page = await stage.page(site.url);
    const error = { message: "it failed", type: "server_error", param: null, code: "x" };
    let isBroken = false;
    await page.route(
      ({ pathname }) => path.test(pathname),
      async (route) => {
        if (isBroken) return await route.fulfill({ status: 500, json: { error } });
        if (busy) return await route.fulfill({ json: busy });
        const list = await (await route.fetch()).json();
        await route.fulfill({
          json: { ...list, memory: [{ name: "scripted", value: "loading" }] },
        });
      },
    );
    await page.clock.install();
    await page.goto(`${site.url}/#/${name}`);
    await page.reload();
    await page.getByText(sign).first().waitFor();
    isBroken = true;
    await page.getByRole("alert").getByText("It failed").waitFor();
    const asked = counting(page);
    await asked.heartbeats(5);
    expect(asked.count(path)).toBeLessThan(12); // 10 or 25 in this time without a back-off, for ever
    await asked.pause(path);
    // In vain, so that nothing can take the button away before it is pressed: the page's next try finds what it looks for.
    await asked.press("Try again", path);
    isBroken = false;
    await page.getByRole("alert").waitFor({ state: "detached" });
  });
});
