// Names, paths and near misses; the listing; where the cache is; the catalog's own consistency.
// Held against: names and paths written here.

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { editDistance, nearest } from "../../src/base/nearest.ts";
import { catalog, defaultModel } from "../../src/catalog/catalog.ts";
import { listModels } from "../../src/catalog/list.ts";
import { findEntries, resolveModel } from "../../src/catalog/resolve.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { modelCacheFolder, smallFilesFolder } from "../../src/platform/node-folders.ts";

let cache: string;
let platform: DownloadPlatform;

beforeAll(async () => {
  cache = await mkdtemp(join(tmpdir(), "lantern-resolve-"));
  const noNetwork = (): never => {
    throw new Error("no network in this test");
  };
  platform = { ...nodeDownloadPlatform({ LANTERN_CACHE: cache }), fetch: noNetwork };
});
afterAll(() => rm(cache, { recursive: true }));

describe("resolveModel", () => {
  test("an existing path wins, even over a catalog name", async () => {
    const path = join(cache, "tinyllama-chat");
    await writeFile(path, "x");
    expect(await resolveModel(path, { platform })).toBe(path);
    const inFolder = { ...platform, stat: async () => ({ bytes: 1, folder: false }) };
    expect(await resolveModel("tinyllama-chat", { platform: inFolder })).toBe("tinyllama-chat");
  });

  test("a URL is passed on", async () => {
    const url = "https://example.org/model.gguf";
    expect(await resolveModel(url, { platform })).toBe(url);
  });

  test("an unknown name gets its near misses", async () => {
    const tried = resolveModel("tinylama-chat", { platform });
    await expect(tried).rejects.toMatchObject({ code: "usage" });
    await expect(tried).rejects.toThrow(/Did you mean tinyllama-chat\b/);
    await expect(resolveModel("tinyllma", { platform })).rejects.toThrow(
      /Did you mean tinyllama-chat /,
    );
    await expect(resolveModel("qwen3", { platform })).rejects.toThrow(
      /Did you mean qwen3-0.6b or /,
    );
    await expect(resolveModel("gpt-99", { platform })).rejects.toThrow(/Known: stories15m, /);
  });

  test("a path that does not exist is not taken for a name", async () => {
    for (const path of ["models/none.gguf", "none.gguf", "C:\\none"]) {
      await expect(resolveModel(path, { platform })).rejects.toMatchObject({
        code: "source",
        message: expect.stringContaining(`no file or folder "${path}"`),
      });
    }
  });

  test("hf: names that name no file, or try to leave the cache", async () => {
    for (const name of ["hf:", "hf:owner", "hf:owner/repo/", "hf:o/r/../../x", "hf:o/r//x"]) {
      await expect(resolveModel(name, { platform })).rejects.toThrow(
        "expected hf:owner/repo, hf:owner/repo:Q4_K_M or hf:owner/repo/file.gguf",
      );
    }
  });

  test("an hf: name of a catalog file is that catalog entry", () => {
    const [entry] = findEntries("hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf")!;
    expect(entry!.name).toBe("qwen3-0.6b");
  });

  test("a revision has its own place", () => {
    const [entry] = findEntries("hf:owner/repo@v1.0/sub/x.gguf")!;
    expect(entry).toMatchObject({
      file: "hf/owner/repo@v1.0/sub/x.gguf",
      source: { repo: "owner/repo", revision: "v1.0", file: "sub/x.gguf" },
    });
  });
});

test("listModels: the catalog, stopped pulls, and strangers in the cache", async () => {
  await mkdir(join(cache, "hf", "o", "r"), { recursive: true });
  await writeFile(join(cache, "hf", "o", "r", "m.gguf"), "12345");
  await writeFile(join(cache, "tinyllama-chat.gguf.part"), "half");
  const listings = await listModels(platform);
  const byName = new Map(listings.map((listing) => [listing.name, listing]));
  expect([...byName.keys()]).toEqual([...catalog.map(({ name }) => name), "hf:o/r/m.gguf"]);
  expect(byName.get("tinyllama-chat")).toMatchObject({ state: "partial", path: undefined });
  expect(byName.get("qwen3-0.6b")).toMatchObject({ state: "absent" });
  expect(byName.get("hf:o/r/m.gguf")).toMatchObject({ state: "cached", bytes: 5 });
});

test("a file of the right name and the wrong size is not taken for the model", async () => {
  await writeFile(join(cache, "tinyllama-chat.gguf"), "short");
  const listings = await listModels(platform);
  expect(listings.find(({ name }) => name === "tinyllama-chat")!.path).toBe(undefined);
});

test("the cache folder by platform", () => {
  const home = "/home/u";
  expect(modelCacheFolder({}, "linux", home)).toBe("/home/u/.cache/lantern/models");
  expect(modelCacheFolder({ XDG_CACHE_HOME: "/c" }, "linux", home)).toBe("/c/lantern/models");
  expect(modelCacheFolder({ XDG_CACHE_HOME: "c" }, "linux", home)).toBe(
    "/home/u/.cache/lantern/models",
  );
  expect(modelCacheFolder({}, "darwin", home)).toBe("/home/u/Library/Caches/lantern/models");
  expect(modelCacheFolder({ LOCALAPPDATA: "D:\\L" }, "win32", "C:\\u")).toBe(
    "D:\\L\\lantern\\models",
  );
  expect(modelCacheFolder({}, "win32", "C:\\u")).toBe("C:\\u\\AppData\\Local\\lantern\\models");
  expect(modelCacheFolder({ LANTERN_CACHE: "/m", XDG_CACHE_HOME: "/c" }, "linux", home)).toBe("/m");
  expect(smallFilesFolder({}, "linux", home)).toBe("/home/u/.cache/lantern");
  expect(smallFilesFolder({}, "win32", "C:\\u")).toBe("C:\\u\\AppData\\Local\\lantern");
  expect(smallFilesFolder({ LANTERN_CACHE: "/m" }, "darwin", home)).toBe("/m");
});

test("the catalog's entries are consistent", () => {
  const names = catalog.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  expect(new Set(catalog.map(({ file }) => file)).size).toBe(names.length);
  expect(names).toContain(defaultModel);
  for (const entry of catalog) {
    expect(entry.name).toMatch(/^[a-z0-9][a-z0-9._-]*$/);
    expect(entry.licence).not.toBe("");
    if (entry.sha256) expect(entry.sha256).toMatch(/^[0-9a-f]{64}$/);
    if (entry.source.kind !== "npm") continue;
    const bytes = entry.source.packages.reduce((sum, part) => sum + part.bytes, 0);
    expect(bytes).toBe(entry.bytes);
  }
});

test("edit distance counts swaps as one", () => {
  expect(editDistance("tmep", "temp")).toBe(1);
  expect(editDistance("", "abc")).toBe(3);
  expect(editDistance("kitten", "sitting")).toBe(3);
  expect(nearest("xyzzy", ["run", "chat"])).toEqual([]);
  expect(nearest("caht", ["run", "chat"])).toEqual(["chat"]);
});
