// Two `lantern serve` on one data folder: the second says which process has it, at which address, and what to do instead, with the
// flags' names; a killed one stops nobody; what it had is there in the next.
// Held against: the sentences and addresses written here.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { tinyFile } from "../support/tiny-file.ts";
import { request } from "./lantern-client.ts";
import { serveProcess } from "./served.ts";

const list = "/lantern/v1/sessions";

test("the second is told where the first is; after a kill the next has it all", async () => {
  const data = mkdtempSync(join(tmpdir(), "lantern-two-"));
  const model = await tinyFile();
  onTestFinished(() => {
    rmSync(data, { recursive: true, force: true });
    model.remove();
  });
  const start = (...flags: string[]) => serveProcess(model.path, data, ["--no-token", ...flags]);
  await using first = await start();
  await request(`${first.url}${list}`, "POST", { title: "kept" }, 201);
  {
    await using second = await start();
    const advice = [
      `the server at ${first.url} (process ${first.process})`,
      "Open that address, or stop that server",
      "--sessions FILE, --no-sessions, or LANTERN_DATA=FOLDER",
    ];
    for (const part of advice) expect(second.said()).toContain(part);
    const response = await fetch(second.url + list);
    expect([response.status, await response.text()]).toEqual([
      503,
      expect.stringContaining(first.url),
    ]);
    expect((await fetch(`${second.url}/v1/models`)).status).toBe(200);
  }
  {
    // The flag that it names does what it says.
    await using apart = await start("--sessions", join(data, "other.db"), "--no-batches");
    expect(apart.said()).not.toContain("in use");
    expect((await fetch(apart.url + list)).status).toBe(200);
  }
  await first.kill();
  await using next = await start();
  expect(next.said()).not.toContain("in use");
  const { sessions } = await request<{ sessions: object[] }>(next.url + list);
  expect(sessions).toMatchObject([{ title: "kept" }]);
});
