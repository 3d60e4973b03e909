// A page stays open while its server is killed and started again, ten times: it says so each time, goes on by itself, and a bookmark opens,
// also in a browser that was closed meanwhile.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { describeBrowser } from "../browser/chromium.ts";
import { wire } from "./front.ts";
import { answers, builtApp, say, useStage } from "./stage.ts";

const script = fileURLToPath(new URL("killable-server.ts", import.meta.url));

interface Killable {
  readonly url: string;
  readonly token: string;
  kill(): Promise<void>;
}

async function start(data: string): Promise<Killable> {
  const child = spawn(process.execPath, [script, await builtApp()], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, LANTERN_DATA: data },
  });
  const closed = once(child, "close");
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await closed;
  };
  onTestFinished(kill);
  let out = "";
  for await (const piece of child.stdout) {
    out += String(piece);
    if (out.includes("\n")) return { ...(JSON.parse(out) as { url: string; token: string }), kill };
  }
  throw new Error("the server ended");
}

describeBrowser("a page whose server is killed and started again", () => {
  const stage = useStage();

  test("goes on each time, with its conversation, and without a new link", async () => {
    const data = mkdtempSync(join(tmpdir(), "lantern-kept-page-"));
    onTestFinished(() => rmSync(data, { recursive: true, force: true }));
    let server = await start(data);
    await using cable = await wire(server.url);
    const page = await stage.page(`${cable.url}/?token=${server.token}#/chat`);
    expect(new URL(page.url()).search).toBe("");
    await say(page, "Is it so?");
    expect(await answers(page)).toHaveLength(1);
    const bookmark = page.url();
    const banner = page.getByText("The server does not respond");
    const askNow = () => page.evaluate(() => dispatchEvent(new Event("online")));
    for (let kills = 1; kills <= 10; kills++) {
      await server.kill();
      await askNow();
      await banner.waitFor();
      server = await start(data);
      cable.lead(server.url);
      await askNow();
      await banner.waitFor({ state: "detached" });
      await say(page, `And after ${kills}?`);
      await expect.poll(async () => (await answers(page)).length).toBe(kills + 1);
    }
    const tab = await page.context().newPage();
    await tab.goto(bookmark);
    expect(await answers(tab)).toHaveLength(11);
    // What a browser keeps when it is closed: cookies with a time.
    const [cookie, ...others] = await page.context().cookies();
    expect(others).toEqual([]);
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
    expect(cookie!.expires).toBeGreaterThan(Date.now() / 1000 + 24 * 3600);
  }, 1_200_000);
});
