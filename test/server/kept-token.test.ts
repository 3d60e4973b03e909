// A server that is killed and started again and again: its link, its pages' cookies and scripts with its token are let in each time,
// until it is started with --new-token.
// Held against: requests with the link of before.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { tinyFile } from "../support/tiny-file.ts";
import { type Served, serveProcess } from "./served.ts";

const sessions = "/lantern/v1/sessions";

async function statusOf(server: Served, headers: Record<string, string>): Promise<number> {
  return (await fetch(server.url + sessions, { headers })).status;
}

test("the token and the cookie are good after ten kills, and not after --new-token", async () => {
  const data = mkdtempSync(join(tmpdir(), "lantern-kept-"));
  const model = await tinyFile();
  onTestFinished(() => {
    rmSync(data, { recursive: true, force: true });
    model.remove();
  });
  let token: string | null = null;
  let cookie = "";
  for (let kills = 0; kills < 10; kills++) {
    await using server = await serveProcess(model.path, data);
    if (token === null) {
      token = server.token;
      const headers = { authorization: `Bearer ${token}` };
      const login = await fetch(`${server.url}/lantern/v1/login`, { method: "POST", headers });
      cookie = login.headers.get("set-cookie")!.split(";")[0]!;
    }
    expect(server.token).toBe(token);
    expect(server.pageUrl).toBe(`${server.url}/?token=${token}`);
    expect(await statusOf(server, { cookie })).toBe(200);
    expect(await statusOf(server, { authorization: `Bearer ${token}` })).toBe(200);
    expect(await statusOf(server, {})).toBe(401);
    expect(server.said()).not.toContain(token);
  }
  await using renewed = await serveProcess(model.path, data, ["--new-token"]);
  expect(renewed.token).not.toBe(token);
  expect(await statusOf(renewed, { cookie })).toBe(401);
  expect(await statusOf(renewed, { authorization: `Bearer ${token}` })).toBe(401);
  expect(await statusOf(renewed, { authorization: `Bearer ${renewed.token}` })).toBe(200);
  await renewed.kill();
  await using last = await serveProcess(model.path, data);
  expect(last.token).toBe(renewed.token);
});
