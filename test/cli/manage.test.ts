// pull, search, rm, ps and models as a user types them, against a hub of our own and a real server; the same command line
// as a process of its own at the end.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { open } from "../../src/index.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { DownloadServer, noise } from "../catalog/download-server.ts";
import { until } from "../server/test-server.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

let hub: DownloadServer;
let cache: string;
let downloads: DownloadPlatform;

beforeAll(async () => {
  hub = new DownloadServer();
  await hub.start();
  hub.files.set("o/tiny-GGUF/tiny-Q8_0.gguf", await tinyGguf());
  hub.files.set("o/tiny-GGUF/tiny-F16-00001-of-00002.gguf", noise(2000));
  hub.files.set("o/tiny-GGUF/tiny-F16-00002-of-00002.gguf", noise(2000));
  cache = await mkdtemp(join(tmpdir(), "lantern-cli-"));
  const env = { LANTERN_CACHE: cache, HF_ENDPOINT: hub.url };
  downloads = { ...nodeDownloadPlatform(env), memoryBytes: 8e9 };
});
afterAll(async () => {
  await hub.stop();
  await rm(cache, { recursive: true });
});

async function lantern(args: string[], prepare?: (terminal: FakeTerminal) => void) {
  const terminal = new FakeTerminal();
  prepare?.(terminal);
  const code = await main(args, terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr };
}

const tinyPath = (): string => join(cache, "hf", "o", "tiny-GGUF", "tiny-Q8_0.gguf");

describe("models", () => {
  test("search, then pull --list, then pull", async () => {
    const found = await lantern(["search", "tiny", "gguf"]);
    expect(found.code).toBe(0);
    expect(found.out).toMatch(/^REPOSITORY +DOWNLOADS .*\no\/tiny-GGUF +1.2 k +7 +2026-05-04\n/);
    const none = await lantern(["search", "nothing"]);
    expect(none).toMatchObject({ code: 0, out: "" });
    expect(none.err).toContain('hub matches "nothing"');

    const list = await lantern(["pull", "o/tiny-GGUF", "--list"]);
    expect(list.out).toMatch(/^TYPE +SIZE +FITS +FILE\n/);
    expect(list.out).toMatch(/^F16 +4.0 kB +yes +tiny-F16-00001-of-00002.gguf and 1 more$/m);
    expect(list.out).toMatch(/^Q8_0 .* yes +suggested +tiny-Q8_0.gguf$/m);
    expect(existsSync(tinyPath())).toBe(false);

    const pulled = await lantern(["pull", "o/tiny-GGUF"]);
    expect(pulled).toMatchObject({ code: 0, out: `${tinyPath()}\n` });
    expect(pulled.err).toMatch(
      /^o\/tiny-GGUF: downloading Q8_0, .* fits in this machine's memory \(8.0 GB\). Also available: F16.\n/,
    );
    expect(pulled.err).toContain("sha256 matches the hub");
    const again = await lantern(["pull", `${hub.url}/o/tiny-GGUF/blob/main/tiny-Q8_0.gguf`]);
    expect(again.err).toContain("already downloaded");
  });

  test("what is wrong with a name or the hub is a sentence, not a stack", async () => {
    const wrong = await lantern(["pull", "o/tiny-GGUF:Q5_K_M"]);
    expect(wrong.code).toBe(2);
    expect(wrong.err).toContain("o/tiny-GGUF has no Q5_K_M. It has: F16");
    expect((await lantern(["pull", "o/gone"])).err).toMatch(/HTTP status 404.*HF_TOKEN/);
    expect((await lantern(["pull", "tinyllama-chat", "--list"])).err).toContain("names one model");
    expect((await lantern(["search"])).code).toBe(2);
  });

  test("models says where files lie and what they take", async () => {
    const { out } = await lantern(["models"]);
    expect(out).toMatch(/^hf:o\/tiny-GGUF\/tiny-Q8_0.gguf .*in the cache/m);
    expect(out).toMatch(
      new RegExp(`Downloaded models are in ${cache}: [\\d.]+ kB, .* free. "lantern rm NAME"`),
    );
  });

  test("a context above the trained one is cut with a warning, on the command line and in the library", async () => {
    const name = "hf:o/tiny-GGUF:Q8_0";
    const args = ["run", "-m", name, "-p", "the cat", "-n", "2", "-c", "100000"];
    const { code, err } = await lantern(args);
    expect(code).toBe(0);
    expect(err).toMatch(
      /^Warning: a context of 100000 tokens was asked for, but .* trained for (\d+) .*holds \1$/m,
    );
    await using model = await open(tinyPath(), { contextSize: 100_000, threads: 1 });
    expect(model.info.contextSize).toBe(model.info.trainedContext);
    expect(model.info.warnings).toHaveLength(1);
    await expect(open(tinyPath(), { contextSize: 0 })).rejects.toThrow("contextSize: got 0");
  });
});

test("ps shows a running server; rm refuses what it has loaded, asks, and deletes", async () => {
  expect((await lantern(["ps"])).err).toContain("No Lantern server is running on this machine");
  const terminal = new FakeTerminal();
  terminal.environment = { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" };
  const serve = ["serve", "-m", tinyPath(), "--port", "0", "--no-sessions", "--no-web"];
  const served = main([...serve, "--api-key", "k"], terminal, downloads);
  await until("the server is there", () => terminal.stdout.includes("Ctrl-C stops it"));
  const url = /served at (\S+)/.exec(terminal.stdout)![1]!;

  expect((await lantern(["ps"])).err).toContain("it needs an API key");
  const ps = await lantern(["ps", "--api-key", "k"]);
  expect(ps.out).toMatch(/^MODEL +MEMORY +CONTEXT +ANSWERING +WAITING +ADDRESS +PROCESS\n/);
  expect(ps.out).toMatch(
    new RegExp(`^tiny-Q8_0 +[\\d.]+ [kM]B +\\d+ +0 +0 +${url} +${process.pid}$`, "m"),
  );
  const [one] = JSON.parse((await lantern(["ps", "--url", url, "--api-key", "k", "--json"])).out);
  expect(one).toMatchObject({ url, status: { models: [{ id: "tiny-Q8_0", running: 0 }] } });
  const nobody = await lantern(["ps", "--url", "http://127.0.0.1:9"]);
  expect(nobody).toMatchObject({ code: 3 });
  expect(nobody.err).toContain("ps: http://127.0.0.1:9: nothing answers there");

  const name = "hf:o/tiny-GGUF:Q8_0";
  const refused = await lantern(["rm", name, "--yes"]);
  expect(refused.code).toBe(3);
  expect(refused.err).toMatch(/is loaded.*first/);
  terminal.pressCtrlC();
  expect(await served).toBe(0);
  expect((await lantern(["ps"])).err).toContain("No Lantern server is running");

  expect((await lantern(["rm", name])).err).toContain("Use --yes to delete without asking");
  const typing = (answer: string) => (typed: FakeTerminal) => {
    typed.inIsTerminal = true;
    typed.script = [answer];
  };
  expect(await lantern(["rm", name], typing("n"))).toMatchObject({ code: 1, out: "" });
  expect(existsSync(tinyPath())).toBe(true);
  const gone = await lantern(["rm", name], typing("y"));
  expect(gone.out).toMatch(/^hf:o\/tiny-GGUF\/tiny-Q8_0.gguf was deleted \(.*\)\n$/);
  expect(existsSync(tinyPath())).toBe(false);
  expect((await lantern(["rm", name, "--yes"])).code).toBe(2);
});

test("lantern pull as a process of its own: the path on stdout, the rest on stderr", async () => {
  const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
  const env = { ...process.env, LANTERN_CACHE: cache, HF_ENDPOINT: hub.url };
  const child = spawn(process.execPath, [launcher, "pull", "hf:o/tiny-GGUF:Q8_0"], { env });
  const text = { out: "", err: "" };
  child.stdout.on("data", (piece) => {
    text.out += piece;
  });
  child.stderr.on("data", (piece) => {
    text.err += piece;
  });
  const [code] = (await once(child, "close")) as [number];
  expect({ code, out: text.out }).toEqual({ code: 0, out: `${tinyPath()}\n` });
  expect(text.err).toContain("downloaded, sha256 matches the hub");
});
