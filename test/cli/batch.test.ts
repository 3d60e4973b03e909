// lantern batch: from a file to a file, interrupted and killed in between; and the batches of a server.
// Held against: the lines of the input, and a server's own answers.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { nodeFileFolder } from "../../src/platform/node-file-folder.ts";
import { post, type TestServer, testServer } from "../server/test-server.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-batch-cli-"));
const downloads = nodeDownloadPlatform({ LANTERN_CACHE: join(folder, "cache") });
const inFolder = (name: string): string => join(folder, name);
const count = 30;
let tiny: Awaited<ReturnType<typeof tinyFile>>;

beforeAll(async () => {
  tiny = await tinyFile({ name: "tale", noTemplate: true, seed: 1 });
  const lines = Array.from({ length: count }, (_, i) =>
    JSON.stringify({
      ...{ custom_id: `r${i}`, method: "POST", url: "/v1/completions" },
      body: { prompt: `Once ${i % 3}`, max_tokens: 20, temperature: 0, ignore_eos: true },
    }),
  );
  writeFileSync(inFolder("in.jsonl"), lines.join("\n"));
});
afterAll(() => {
  tiny.remove();
  rmSync(folder, { recursive: true, force: true });
});

const flags = (output: string): string[] => [
  ...["batch", inFolder("in.jsonl"), "-o", inFolder(output), "-m", tiny.path, "-t", "1"],
  ...["--parallel", "4"],
];

async function run(args: string[]) {
  const terminal = new FakeTerminal();
  terminal.environment = { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" };
  const code = await main(args, terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr };
}

type Line = { custom_id: string; response: { body: { choices: { text: string }[] } } };

function answersOf(output: string): [string, string | undefined][] {
  const lines = readFileSync(inFolder(output), "utf8").trim().split("\n");
  return lines.map((line) => {
    const { custom_id, response } = JSON.parse(line) as Line;
    return [custom_id, response.body.choices?.[0]?.text];
  });
}

describe("a file of requests", () => {
  test("every request has its answer, in order", async () => {
    const { code, out } = await run([...flags("whole.jsonl"), "--json"]);
    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({ requests: count, answered: count, failed: 0 });
    const answers = answersOf("whole.jsonl");
    expect(answers.map(([id]) => id)).toEqual(Array.from({ length: count }, (_, i) => `r${i}`));
    expect(answers.every(([, text]) => typeof text === "string")).toBe(true);
    expect(existsSync(inFolder("whole.jsonl.batch"))).toBe(false);
  });

  test("killed in between, it goes on: the same file as without", async () => {
    const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
    const env = { ...process.env, LANTERN_CACHE: inFolder("cache"), LANTERN_NO_TUNE: "1" };
    let kills = 0;
    const pauses = [0, 150, 300];
    while (pauses.length > 0) {
      const child = spawn(process.execPath, [launcher, ...flags("killed.jsonl")], { env });
      const ended = once(child, "exit");
      // Not before there is something to lose.
      while (child.exitCode === null && !existsSync(inFolder("killed.jsonl.batch/batch.db"))) {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      await new Promise((resolve) => setTimeout(resolve, pauses[0]));
      if (child.exitCode !== null && kills > 0) break;
      if (child.exitCode !== null) {
        rmSync(inFolder("killed.jsonl")); // it was too quick to be killed: once more
        continue;
      }
      pauses.shift();
      child.kill("SIGKILL");
      await ended;
      kills++;
    }
    expect(kills).toBeGreaterThan(0);
    const { code } = await run(flags("killed.jsonl"));
    expect(code).toBe(0);
    expect(answersOf("killed.jsonl")).toEqual(answersOf("whole.jsonl"));
  });

  test("what is wrong is said before anything is done", async () => {
    expect(await run(["batch"])).toMatchObject({ code: 2 });
    expect((await run(["batch", inFolder("in.jsonl")])).err).toContain("no output file");
    const missing = await run(["batch", inFolder("none.jsonl"), "-o", inFolder("x.jsonl")]);
    expect(missing.err).toContain("none.jsonl");
    const same = await run(["batch", inFolder("in.jsonl"), "-o", inFolder("in.jsonl")]);
    expect(same.err).toContain("which is being read");
    writeFileSync(inFolder("bad.jsonl"), '{"custom_id":"a","url":"/v1/completions"}\nnonsense\n');
    const bad = await run([
      "batch",
      inFolder("bad.jsonl"),
      "-o",
      inFolder("x.jsonl"),
      "-m",
      tiny.path,
    ]);
    expect(bad.err).toMatch(/"method": got nothing[\s\S]*line 2 is not JSON/);
    expect(existsSync(inFolder("x.jsonl"))).toBe(false);
  });
});

describe("a server's batches", () => {
  let running: TestServer;
  beforeAll(async () => {
    running = await testServer({
      batches: {
        open: () => openNodeDatabase(inFolder("server.db")),
        folder: nodeFileFolder(inFolder("server-files")),
      },
    });
  });
  afterAll(async () => {
    await running.close();
  });

  test("list, status, cancel", async () => {
    const { url } = running.server;
    expect((await run(["batch", "list", "--url", url])).err).toContain("no batches");
    const form = new FormData();
    form.set("purpose", "batch");
    form.set("file", new Blob([readFileSync(inFolder("in.jsonl"))]), "in.jsonl");
    const sent = await fetch(`${url}/v1/files`, { method: "POST", body: form });
    const { id: file } = (await sent.json()) as { id: string };
    const made = await post(`${url}/v1/batches`, {
      ...{ input_file_id: file, endpoint: "/v1/completions", completion_window: "24h" },
    });
    const { id } = (await made.json()) as { id: string };
    const listed = await run(["batch", "list", "--url", url]);
    expect(listed.out).toContain(id);
    const status = await run(["batch", "status", id, "--url", url, "--json"]);
    expect(JSON.parse(status.out)).toMatchObject({ id, request_counts: { failed: 0 } });
    const cancelled = await run(["batch", "cancel", id, "--url", url]);
    expect(cancelled.out + cancelled.err).toMatch(/cancel/);
    const none = await run(["batch", "status", "batch_none", "--url", url]);
    expect(none.err).toContain("there is no batch");
    const nobody = await run(["batch", "list", "--url", "http://127.0.0.1:1"]);
    expect(nobody.err).toContain("nothing answers");
  });
});
