// Downloads from the hub, against a local server that misbehaves.

import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { CatalogEntry } from "../../src/catalog/catalog.ts";
import { type PullProgress, pullEntry } from "../../src/catalog/pull.ts";
import { findEntries, resolveModel } from "../../src/catalog/resolve.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { DownloadServer, noise, sha256 } from "./download-server.ts";

let server: DownloadServer;
let cache: string;
let platform: DownloadPlatform;
const model = noise(300_000);
const name = "hf:owner/repo/model.gguf";

beforeEach(async () => {
  server = new DownloadServer();
  await server.start();
  server.files.set("owner/repo/model.gguf", model);
  cache = await mkdtemp(join(tmpdir(), "lantern-pull-"));
  platform = platformWith({});
});

afterEach(async () => {
  await server.stop();
  await rm(cache, { recursive: true });
});

function platformWith(env: Record<string, string>): DownloadPlatform {
  const base = nodeDownloadPlatform({ LANTERN_CACHE: cache, HF_ENDPOINT: server.url, ...env });
  return { ...base, sleep: async () => {} };
}

function entry(): CatalogEntry {
  return findEntries(name)![0]!;
}

const finalPath = (): string => join(cache, "hf", "owner", "repo", "model.gguf");

test("a file arrives complete, checked against the hub's hash, and leaves nothing else behind", async () => {
  const seen: PullProgress[] = [];
  const pulled = await pullEntry(entry(), platform, {
    onProgress: (progress) => seen.push(progress),
  });
  expect(pulled).toEqual({
    path: finalPath(),
    bytes: model.length,
    from: "download",
    sha256: sha256(model),
    statedBy: "the hub",
    resumedBytes: 0,
  });
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
  expect(await platform.listFiles(cache)).toEqual(["hf/owner/repo/model.gguf"]);
  expect(seen.at(-1)).toEqual({ phase: "download", loadedBytes: 300_000, totalBytes: 300_000 });
});

test("a second pull asks nobody", async () => {
  await pullEntry(entry(), platform);
  server.log.length = 0;
  expect(await resolveModel(name, { platform })).toBe(finalPath());
  expect(server.log).toEqual([]);
});

test("cut connections are continued at their byte", async () => {
  server.cuts = [100_000, 50_000];
  await pullEntry(entry(), platform);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
  const ranges = server.bodyRequests().map(({ range }) => range);
  expect(ranges[0]).toBe(undefined);
  expect(ranges).toHaveLength(3);
  for (const range of ranges.slice(1)) expect(range).toMatch(/^bytes=[1-9]\d*-$/);
});

test("a server that ignores ranges sends everything again, and nothing is doubled", async () => {
  server.cuts = [100_000];
  server.ignoreRanges = true;
  await pullEntry(entry(), platform);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
});

test("a busy server is asked again", async () => {
  await pullEntry(entry(), { ...platform, fetch: refusing(platform.fetch, [503, 429]) });
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
});

/** Refuses the first requests for bytes of the body with these statuses. */
function refusing(fetch: DownloadPlatform["fetch"], statuses: number[]): DownloadPlatform["fetch"] {
  return (input, init) => {
    const probe = new Headers(init?.headers).get("range") === "bytes=0-0";
    if (init?.method !== "POST" && !probe) server.refusals = statuses.splice(0, 1);
    return fetch(input, init);
  };
}

test("stopped by a signal, a pull keeps its part and the next one goes on from there", async () => {
  server.stallAfter = 120_000;
  const controller = new AbortController();
  const onProgress = ({ loadedBytes }: PullProgress): void => {
    if (loadedBytes === 120_000) controller.abort();
  };
  const { signal } = controller;
  await expect(pullEntry(entry(), platform, { signal, onProgress })).rejects.toMatchObject({
    code: "aborted",
  });
  expect(existsSync(finalPath())).toBe(false);
  expect((await stat(`${finalPath()}.part`)).size).toBe(120_000);
  expect(existsSync(`${finalPath()}.lock`)).toBe(false);

  server.stallAfter = undefined;
  server.log.length = 0;
  const phases = new Set<string>();
  const pulled = await pullEntry(entry(), platform, {
    onProgress: ({ phase }) => phases.add(phase),
  });
  expect(pulled.resumedBytes).toBe(120_000);
  expect(server.bodyRequests().map(({ range }) => range)).toEqual(["bytes=120000-"]);
  expect([...phases]).toEqual(["check", "download"]);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
  expect(await platform.listFiles(cache)).toEqual(["hf/owner/repo/model.gguf"]);
});

test("a server that stands still in the middle is asked for the rest; one that stays so is given up", async () => {
  const impatient = {
    ...platform,
    env: (name: string) => (name === "LANTERN_HTTP_TIMEOUT" ? "0.2" : platform.env(name)),
    sleep: async () => {},
  };
  server.stallAfter = 120_000;
  const stalled = pullEntry(entry(), impatient, {
    onProgress: ({ loadedBytes }) => {
      if (loadedBytes >= 240_000) server.stallAfter = undefined;
    },
  });
  await stalled;
  const ranges = server.bodyRequests().map(({ range }) => range);
  expect(ranges).toEqual([undefined, "bytes=120000-", "bytes=240000-"]);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));

  await rm(finalPath());
  server.stallAfter = 0;
  await expect(pullEntry(entry(), impatient)).rejects.toThrow(
    /gave up after 5 attempts at .*: nothing came for 0.2 s/,
  );
  server.stallAfter = undefined;
  const silent: DownloadPlatform["fetch"] = (_, init) =>
    new Promise((_resolve, reject) =>
      init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason)),
    );
  await expect(pullEntry(entry(), { ...impatient, fetch: silent })).rejects.toThrow(
    "the hub did not answer in time. Try again, or set LANTERN_HTTP_TIMEOUT to more seconds",
  );
});

async function stopHalfway(): Promise<void> {
  server.stallAfter = 120_000;
  const controller = new AbortController();
  const pull = pullEntry(entry(), platform, {
    signal: controller.signal,
    onProgress: ({ loadedBytes }) => loadedBytes === 120_000 && controller.abort(),
  });
  await pull.catch(() => {});
  server.stallAfter = undefined;
  server.log.length = 0;
}

test("when the file on the server has changed since, the part is not continued", async () => {
  await stopHalfway();
  const changed = noise(280_000, 2);
  server.files.set("owner/repo/model.gguf", changed);
  const pulled = await pullEntry(entry(), platform);
  expect(pulled.resumedBytes).toBe(0);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(changed));
});

test("when it changes in the middle of a download, the download starts over", async () => {
  const changed = noise(300_000, 3);
  server.cuts = [100_000];
  const onProgress = ({ loadedBytes }: PullProgress): void => {
    if (loadedBytes < 300_000) server.files.set("owner/repo/model.gguf", changed);
  };
  await pullEntry(entry(), platform, { onProgress });
  expect(sha256(await readFile(finalPath()))).toBe(sha256(changed));
});

test("a part that was damaged on the disk is noticed and downloaded anew", async () => {
  await stopHalfway();
  await writeFile(`${finalPath()}.part`, noise(120_000, 9));
  await pullEntry(entry(), platform);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
});

test("a wrong hash: an error with both hashes, and nothing stays", async () => {
  server.statedSha256 = "a".repeat(64);
  const pull = pullEntry(entry(), platform);
  await expect(pull).rejects.toThrow(
    `got sha256 ${sha256(model)}, expected ${"a".repeat(64)} (stated by the hub)`,
  );
  expect(await platform.listFiles(cache)).toEqual([]);
});

test("a hash in the catalog goes before the hub's", async () => {
  const known = { ...entry(), sha256: "b".repeat(64), bytes: model.length };
  await expect(pullEntry(known, platform)).rejects.toThrow("stated by the catalog");
});

test("no such file and no such repository say so", async () => {
  await expect(resolveModel("hf:owner/repo/other.gguf", { platform })).rejects.toThrow(
    'hub: owner/repo (main) has no file "other.gguf"',
  );
  const gone = resolveModel("hf:owner/gone/model.gguf", { platform });
  await expect(gone).rejects.toThrow(/owner\/gone.*HTTP status 404.*HF_TOKEN/);
  expect(await platform.listFiles(cache)).toEqual([]);
});

test("a dead network is an error that names the host and what to do", async () => {
  const dead = nodeDownloadPlatform({ LANTERN_CACHE: cache, HF_ENDPOINT: "http://127.0.0.1:9" });
  await expect(resolveModel(name, { platform: dead })).rejects.toMatchObject({
    code: "source",
    message: expect.stringMatching(/hub could not be reached.*HF_ENDPOINT/),
  });
});

test("a download that never gets on gives up", async () => {
  server.cuts = [0, 0, 0, 0, 0, 0, 0];
  await expect(pullEntry(entry(), platform)).rejects.toThrow(/gave up after 5 attempts/);
});

test("the token goes to the hub, and only when there is one", async () => {
  await pullEntry(entry(), platformWith({ HF_TOKEN: "hf_secret" }));
  expect(new Set(server.log.map(({ authorization }) => authorization))).toEqual(
    new Set(["Bearer hf_secret"]),
  );
});

test("large files live on another host: ranges reach it, the token does not", async () => {
  const storage = new DownloadServer();
  await storage.start();
  storage.files.set("owner/repo/model.gguf", model);
  storage.cuts = [100_000];
  server.redirectTo = storage.url;
  await pullEntry(entry(), platformWith({ HF_TOKEN: "hf_secret" }));
  await storage.stop();
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
  expect(storage.bodyRequests().map(({ range }) => range)).toEqual([
    undefined,
    expect.stringMatching(/^bytes=[1-9]\d*-$/),
  ]);
  expect(storage.log.filter(({ authorization }) => authorization !== undefined)).toEqual([]);
});

test("a disk with too little room is refused before anything is downloaded", async () => {
  const full = { ...platform, freeBytes: async () => 10_000_000 };
  await expect(pullEntry(entry(), full)).rejects.toThrow(
    /needs 67 MB in .* where 10 MB are free.* LANTERN_CACHE/,
  );
  expect(server.bodyRequests()).toEqual([]);
});

test("a disk that fills up meanwhile: an error that says how to go on", async () => {
  const filling: DownloadPlatform = {
    ...platform,
    openAppend: async (path, length) => {
      const file = await platform.openAppend(path, length);
      const error = Object.assign(new Error("no space"), { code: "ENOSPC" });
      return { ...file, append: () => Promise.reject(error) };
    },
  };
  await expect(pullEntry(entry(), filling)).rejects.toThrow(/disk of .* became full.*continues/);
  await pullEntry(entry(), platform);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
});

test("two pulls at once: one works, the other is told so, the file is right", async () => {
  const results = await Promise.allSettled([
    pullEntry(entry(), platform),
    pullEntry(entry(), platformWith({})),
  ]);
  const refused = results.filter((result) => result.status === "rejected");
  expect(refused).toHaveLength(1);
  expect(String(refused[0]!.reason)).toMatch(/already being downloaded by process \d+/);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(model));
});

test("the lock of a process that died is taken over", async () => {
  await platform.makeFolder(join(cache, "hf", "owner", "repo"));
  const { hostname } = await import("node:os");
  const dead = { pid: 2 ** 30, host: hostname(), since: "2026-01-01" };
  await writeFile(`${finalPath()}.lock`, JSON.stringify(dead));
  await pullEntry(entry(), platform);
  expect(await platform.listFiles(cache)).toEqual(["hf/owner/repo/model.gguf"]);
});

test("all parts of a split GGUF come, and the first one is the model", async () => {
  for (const part of [1, 2, 3]) {
    server.files.set(`owner/repo/big-0000${part}-of-00003.gguf`, noise(1000, part));
  }
  const path = await resolveModel("hf:owner/repo/big-00001-of-00003.gguf", { platform });
  expect(path).toBe(join(cache, "hf", "owner", "repo", "big-00001-of-00003.gguf"));
  expect(await platform.listFiles(cache)).toEqual(
    [1, 2, 3].map((part) => `hf/owner/repo/big-0000${part}-of-00003.gguf`),
  );
});
