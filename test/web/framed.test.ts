// The page in a frame of another page, where it could be clicked without being seen; and behind a proxy that adds a stricter content
// security policy, or loses Lantern's.
// Held against: what the browser blocks.

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { describeBrowser } from "../browser/chromium.ts";
import { request } from "../server/lantern-client.ts";
import { foreignPage, proxy } from "./front.ts";
import { scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

const rich =
  "**bold** and $x^2$\n\n```js\nconst a = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\ndone";
const model = () => scriptedModel({ answer: () => rich });

/** Presses and drags over all of it. */
async function attack(page: Page): Promise<void> {
  const frame = page.locator("iframe");
  const { x, y, width, height } = (await frame.boundingBox())!;
  for (let row = 0.1; row < 1; row += 0.2) {
    for (let column = 0.1; column < 1; column += 0.2) {
      await page.mouse.click(x + column * width, y + row * height);
    }
  }
  await page.locator("#bait").dragTo(frame);
  await page.keyboard.type("hello");
  await page.keyboard.press("Enter");
}

const lure = (url: string) =>
  `<h1>Win</h1><p id="bait" draggable="true">drag me</p><iframe src="${url}" width="900" height="600" allow="clipboard-read; clipboard-write"></iframe>`;

describeBrowser("in a frame", () => {
  const stage = useStage();

  test.each(["/#/chat", "/#/models", "/worker", "/lantern/v1/sessions", "/metrics", "/no/such"])(
    "%s is not shown",
    async (path) => {
      const site = await stage.serve({ models: { scripted: model() } });
      await using evil = await foreignPage(lure(site.url + path));
      const page = await stage.quietPage(evil.url); // the browser says what it refuses
      await expect.poll(() => page.frames().at(-1)!.url()).toMatch(/^chrome-error:/);
      await attack(page);
      expect(await request(`${site.url}/lantern/v1/sessions`)).toMatchObject({ sessions: [] });
    },
  );

  test.each(["/#/chat", "/worker"])(
    "%s does not start where a proxy has lost the headers",
    async (path) => {
      const site = await stage.serve({ models: { scripted: model() } });
      await using front = await proxy(site.url, (headers) => {
        delete headers["x-frame-options"];
        delete headers["content-security-policy"];
      });
      await using evil = await foreignPage(lure(front.url + path));
      const page = await stage.page(evil.url);
      const inside = page.frameLocator("iframe");
      await inside.getByText("Lantern does not run inside of another page").waitFor();
      await attack(page);
      expect(await inside.locator("#app > *").count()).toBe(0);
      expect(await request(`${site.url}/lantern/v1/sessions`)).toMatchObject({ sessions: [] });
    },
  );
});

const strict = "default-src 'self'; require-trusted-types-for 'script'";

describeBrowser("behind a proxy with a policy of its own", () => {
  const stage = useStage();

  test("everything but pictures made by the page works with a strict one", async () => {
    const site = await stage.serve({ models: { scripted: model() }, hasBatches: true });
    await using front = await proxy(site.url, (headers) => {
      headers["content-security-policy"] = [headers["content-security-policy"] as string, strict];
    });
    const page = await stage.page(front.url);
    await say(page, "Hello");
    await answers(page);
    await page.locator(".answer strong").getByText("bold").waitFor();
    await page.locator(".answer math").waitFor();
    await page.locator(".answer .hljs-keyword").waitFor();
    for (const name of ["story", "machine", "limits", "quantize", "models", "batches"]) {
      await page.goto(`${front.url}/#/${name}`);
      await expect.poll(() => page.title()).toMatch(new RegExp(name, "i"));
      await page.locator("h1:visible").waitFor();
    }
    expect(await page.getByText("content security policy").count()).toBe(0);
    await page.goto(`${front.url}/worker`);
    await page.getByRole("heading", { name: "Compute for a cluster" }).waitFor();
  });

  test("what it blocks is said", async () => {
    const site = await stage.serve({ models: { scripted: model() } });
    await using front = await proxy(site.url, (headers) => {
      headers["content-security-policy"] = "default-src 'self'; img-src 'none'; connect-src 'self'";
    });
    const page = await stage.quietPage(`${front.url}/#/chat`);
    await page.locator("h1").waitFor();
    await page.evaluate(() => new Image().setAttribute("src", "/favicon.svg"));
    await page.getByRole("alert").getByText("img-src has blocked a part of this page").waitFor();
  });

  test("a page without its scripts says so", async () => {
    const site = await stage.serve({ models: { scripted: model() } });
    await using front = await proxy(site.url, (headers) => {
      headers["content-security-policy"] = "default-src 'none'";
    });
    const page = await stage.quietPage(front.url);
    await page.getByText("This page has not started").waitFor();
  });
});
