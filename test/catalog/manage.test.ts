// Models by name against a hub of our own: repositories and addresses, parts, refusals, search; deleting; and the servers
// that keep a file from being deleted.

import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { browseFolder, checkModelPath, findFile } from "../../src/catalog/browse.ts";
import { searchHub } from "../../src/catalog/hub-client.ts";
import { linkedPaths, linkPath } from "../../src/catalog/linked.ts";
import { diskUse, listModels } from "../../src/catalog/list.ts";
import { pullModel } from "../../src/catalog/pull-model.ts";
import { removeModel } from "../../src/catalog/remove.ts";
import { choosePull, locateModel, resolveModel } from "../../src/catalog/resolve.ts";
import { announceServer, runningServers } from "../../src/catalog/servers.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { DownloadServer, noise } from "./download-server.ts";

let server: DownloadServer;
let cache: string;
let platform: DownloadPlatform;

beforeEach(async () => {
  server = new DownloadServer();
  await server.start();
  server.files.set("o/r-GGUF/r-Q4_K_M.gguf", noise(4000));
  server.files.set("o/r-GGUF/r-Q8_0-00001-of-00002.gguf", noise(3000, 2));
  server.files.set("o/r-GGUF/r-Q8_0-00002-of-00002.gguf", noise(5000, 3));
  server.files.set("o/r-GGUF/mmproj-F16.gguf", noise(10));
  server.files.set("o/r-GGUF/README.md", noise(10));
  cache = await mkdtemp(join(tmpdir(), "lantern-manage-"));
  platform = platformWith({});
});

afterEach(async () => {
  await server.stop();
  await rm(cache, { recursive: true });
});

function platformWith(env: Record<string, string>): DownloadPlatform {
  const base = nodeDownloadPlatform({ LANTERN_CACHE: cache, HF_ENDPOINT: server.url, ...env });
  return { ...base, memoryBytes: 8e9, homeFolder: join(cache, "home"), sleep: async () => {} };
}

const inCache = (...parts: string[]): string => join(cache, "hf", "o", "r-GGUF", ...parts);

describe("pull", () => {
  test("a repository, a type, a file and an address all lead to the same files", async () => {
    for (const name of [
      "hf:o/r-GGUF:Q4_K_M",
      "o/r-GGUF:q4_k_m",
      "o/r-GGUF/r-Q4_K_M.gguf",
      `${server.url}/o/r-GGUF/blob/main/r-Q4_K_M.gguf`,
      "https://huggingface.co/o/r-GGUF/resolve/main/r-Q4_K_M.gguf?download=true",
    ]) {
      const pulled = await pullModel(name, platform);
      expect(pulled, name).toMatchObject({
        name: "hf:o/r-GGUF/r-Q4_K_M.gguf",
        path: inCache("r-Q4_K_M.gguf"),
        bytes: 4000,
      });
    }
    expect(server.bodyRequests().filter(({ path }) => path.includes("/resolve/"))).toHaveLength(1);
  });

  test("all parts of a split one come, with one progress over all of them", async () => {
    const seen: [number, number][] = [];
    const pulled = await pullModel("hf:o/r-GGUF:Q8_0", platform, {
      onProgress: ({ loadedBytes, totalBytes }) => seen.push([loadedBytes, totalBytes]),
    });
    expect(pulled).toMatchObject({ path: inCache("r-Q8_0-00001-of-00002.gguf"), bytes: 8000 });
    expect(pulled.files).toHaveLength(2);
    expect(seen.at(-1)).toEqual([8000, 8000]);
    expect(new Set(seen.map(([, total]) => total))).toEqual(new Set([8000]));
    expect(seen.map(([loaded]) => loaded)).toEqual(
      seen.map(([loaded]) => loaded).toSorted((a, b) => a - b),
    );
    const listed = (await listModels(platform)).filter(({ name }) => name.startsWith("hf:o/"));
    expect(listed).toMatchObject([{ state: "cached", bytes: 8000, diskBytes: 8000 }]);
  });

  test("without a type, the one that suits the memory is taken", async () => {
    const choice = await choosePull("o/r-GGUF", platform);
    expect(choice.chosen!.quantization).toBe("Q8_0"); // below 1 GB
    expect(choice.variants!.map(({ quantization }) => quantization)).toEqual(["Q4_K_M", "Q8_0"]);
    const none = choosePull("o/r-GGUF", { ...platform, memoryBytes: 1e6 });
    await expect(none).rejects.toThrow("no file of o/r-GGUF fits");
  });

  test("one part of a split model that is missing is not a model", async () => {
    await pullModel("hf:o/r-GGUF:Q8_0", platform);
    await rm(inCache("r-Q8_0-00002-of-00002.gguf"));
    const listed = (await listModels(platform)).find(({ name }) => name.startsWith("hf:o/"))!;
    expect(listed).toMatchObject({ state: "partial", path: undefined, diskBytes: 3000 });
    await expect(locateModel("hf:o/r-GGUF:Q8_0", platform)).rejects.toThrow(
      "lantern pull hf:o/r-GGUF:Q8_0",
    );
    await pullModel("hf:o/r-GGUF:Q8_0", platform);
    expect(existsSync(inCache("r-Q8_0-00002-of-00002.gguf"))).toBe(true);
  });

  test("a gated repository wants a token, and is told it", async () => {
    server.gated.set("o/r-GGUF", "hf_right");
    await expect(pullModel("o/r-GGUF", platform)).rejects.toThrow(/HTTP status 401.*set HF_TOKEN/);
    const wrong = pullModel("o/r-GGUF", platformWith({ HF_TOKEN: "hf_wrong" }));
    await expect(wrong).rejects.toThrow(/HTTP status 401.*accept the model's licence/);
    await pullModel("o/r-GGUF:Q4_K_M", platformWith({ HF_TOKEN: "hf_right" }));
    expect(existsSync(inCache("r-Q4_K_M.gguf"))).toBe(true);
  });

  test("a repository that is not there, and one without GGUF files", async () => {
    await expect(pullModel("o/gone", platform)).rejects.toThrow(
      /o\/gone \(main\).*HTTP status 404/,
    );
    server.files.set("o/plain/model.safetensors", noise(10));
    await expect(pullModel("o/plain", platform)).rejects.toThrow(
      /no GGUF files.*lantern search plain/,
    );
  });

  test("what is here is found without the hub; what is not is downloaded by -m", async () => {
    expect(await resolveModel("hf:o/r-GGUF:Q4_K_M", { platform })).toBe(inCache("r-Q4_K_M.gguf"));
    server.log.length = 0;
    for (const name of [
      "hf:o/r-GGUF:Q4_K_M",
      "hf:o/r-GGUF",
      "o/r-GGUF",
      "https://huggingface.co/o/r-GGUF",
    ]) {
      expect(await resolveModel(name, { platform })).toBe(inCache("r-Q4_K_M.gguf"));
      expect(await locateModel(name, platform)).toBe(inCache("r-Q4_K_M.gguf"));
    }
    expect(server.log).toEqual([]);
    await expect(resolveModel("models/mistyped", { platform })).rejects.toThrow(
      /no file or folder "models\/mistyped", and no such model on the Hugging Face hub either/,
    );
    await expect(locateModel("models/mistyped", platform)).rejects.toThrow(
      'no file or folder "models/mistyped"',
    );
  });
});

test("a hub that lists paths out of the cache folder, or names for terminals, is not believed", async () => {
  server.files.set("o/evil-GGUF/../../../../escape-Q4_0.gguf", noise(10));
  server.files.set("o/evil-GGUF/red\u001b[31m-Q4_0.gguf", noise(10));
  await expect(pullModel("o/evil-GGUF", platform)).rejects.toThrow("no GGUF files");
  server.files.set("o/\u001b[31mred/x.gguf", noise(10));
  expect(await searchHub("red", platform)).toEqual([]);
});

test("search: repositories with what is known of them", async () => {
  server.gated.set("o/r-GGUF", "x");
  server.files.set("p/other-GGUF/x.gguf", noise(1));
  expect(await searchHub("r-gguf o/", platform)).toEqual([
    {
      repo: "o/r-GGUF",
      downloads: 1234,
      likes: 7,
      gated: true,
      updated: "2026-05-04T03:02:01.000Z",
    },
  ]);
  expect(await searchHub("nothing like it", platform)).toEqual([]);
  const { log } = server;
  expect(log.at(-1)!.path).toBe("api/models");
  const dead = nodeDownloadPlatform({ LANTERN_CACHE: cache, HF_ENDPOINT: "http://127.0.0.1:9" });
  await expect(searchHub("x", dead)).rejects.toThrow(/hub could not be reached.*HF_ENDPOINT/);
});

describe("remove", () => {
  test("all files of a model go, with the folders that are empty then", async () => {
    await pullModel("hf:o/r-GGUF:Q8_0", platform);
    await pullModel("hf:o/r-GGUF:Q4_K_M", platform);
    expect(diskUse(await listModels(platform))).toBe(12_000);
    const removed = await removeModel("hf:o/r-GGUF:Q8_0", platform);
    expect(removed).toMatchObject({ how: "deleted", bytes: 8000 });
    expect(await readdir(inCache())).toEqual(["r-Q4_K_M.gguf"]);
    await removeModel("o/r-GGUF", platform);
    expect(await readdir(cache)).toEqual([]);
  });

  test("a stopped download goes, too", async () => {
    await mkdir(inCache(), { recursive: true });
    await writeFile(inCache("x.gguf.part"), "half");
    await writeFile(inCache("x.gguf.part.json"), "{}");
    expect((await removeModel("hf:o/r-GGUF/x.gguf", platform)).bytes).toBe(4);
    expect(await readdir(cache)).toEqual([]);
  });

  test("what is not here, could be two or came with Lantern is refused", async () => {
    await expect(removeModel("qwen3-0.6b", platform)).rejects.toThrow("is not on this machine");
    await expect(removeModel("../../etc/passwd", platform)).rejects.toThrow("there is no model");
    await pullModel("hf:o/r-GGUF:Q8_0", platform);
    await pullModel("hf:o/r-GGUF:Q4_K_M", platform);
    await expect(removeModel("o/r-GGUF", platform)).rejects.toThrow(
      /can mean hf:.*, hf:.*Name one/,
    );
    await expect(removeModel("hf:o/r-GGUF:Q4_K", platform)).rejects.toThrow("Did you mean");
  });

  test("a file that a running server has loaded stays", async () => {
    const { path } = await pullModel("hf:o/r-GGUF:Q4_K_M", platform);
    const other = { ...platform, processId: process.ppid };
    const models = [{ id: "r", path }];
    const announced = await announceServer(other, {
      url: "http://127.0.0.1:1",
      since: "2026",
      models,
    });
    await expect(removeModel("hf:o/r-GGUF:Q4_K_M", platform)).rejects.toThrow(
      `is loaded by the server at http://127.0.0.1:1 (process ${process.ppid})`,
    );
    await announced.update([]);
    await removeModel("hf:o/r-GGUF:Q4_K_M", platform);
    expect(existsSync(path)).toBe(false);
    await announced.withdraw();
  });

  test("a file that is being downloaded stays", async () => {
    const { path } = await pullModel("hf:o/r-GGUF:Q4_K_M", platform);
    const lock = await platform.lock(`${path}.lock`);
    await expect(removeModel("hf:o/r-GGUF:Q4_K_M", platform)).rejects.toThrow(
      "is being downloaded",
    );
    if ("release" in lock) await lock.release();
  });

  test("a model that lies elsewhere is forgotten, and its file stays", async () => {
    await mkdir(join(cache, "home", "models"), { recursive: true });
    const path = join(cache, "home", "models", "mine.gguf");
    await writeFile(path, "12345");
    await linkPath(path, platform);
    await linkPath(path, platform);
    expect(await linkedPaths(platform)).toEqual([path]);
    const removed = await removeModel("mine.gguf", { ...platform, listFiles: async () => [] });
    expect(removed).toEqual({ name: path, how: "forgotten", files: [], bytes: 0 });
    expect(existsSync(path)).toBe(true);
    expect(await linkedPaths(platform)).toEqual([]);
  });
});

test("what Lantern itself keeps where one folder is named for everything is no model", async () => {
  await mkdir(join(cache, "native"));
  await writeFile(join(cache, "native", "kernels-x64-avx2.bin"), noise(10));
  await writeFile(join(cache, "mine.bin"), noise(10));
  const files = (await listModels(platform)).flatMap((listing) => listing.files);
  expect(files).toEqual(["mine.bin"]);
});

test("of changes that follow each other quickly the last one counts, and the record is always whole", async () => {
  let slow = 40;
  const writeText: DownloadPlatform["writeText"] = async (path, text) => {
    slow -= 20;
    await new Promise((wake) => setTimeout(wake, Math.max(0, slow)));
    await platform.writeText(path, text);
  };
  const url = "http://127.0.0.1:3";
  const server = await announceServer({ ...platform, writeText }, { url, since: "x", models: [] });
  const [one, two] = ["a", "b"].map((id) => ({ id, path: `/${id.repeat(40)}.gguf` }));
  slow = 60;
  await Promise.all([server.update([one!]), server.update([one!, two!])]);
  const [record] = await runningServers(platform);
  expect(record!.models).toEqual([one, two]);
  await server.withdraw();
  expect(await runningServers(platform)).toEqual([]);
});

test("servers that died are forgotten, and nonsense in their folder is no server", async () => {
  const mine = { url: "http://127.0.0.1:2", since: "2026-01-02", models: [] };
  await announceServer(platform, mine);
  await announceServer({ ...platform, processId: 2 ** 30 }, { ...mine, since: "2026-01-01" });
  await writeFile(join(cache, ".servers", "x.json"), '{"processId": 1, "url": "file:///etc"}');
  expect(await runningServers(platform)).toEqual([{ ...mine, processId: process.pid }]);
  expect((await readdir(join(cache, ".servers"))).toSorted()).toEqual([
    `${process.pid}.json`,
    "x.json",
  ]);
});

describe("files of this machine", () => {
  beforeEach(async () => {
    const home = join(cache, "home");
    await mkdir(join(home, "Downloads", "deep"), { recursive: true });
    await mkdir(join(home, "folder-model"), { recursive: true });
    await mkdir(join(home, ".hidden"), { recursive: true });
    await writeFile(join(home, "Downloads", "deep", "a.gguf"), "123");
    await writeFile(join(home, "letter.txt"), "private");
    await writeFile(join(home, "b-00001-of-00002.gguf"), "1");
    await writeFile(join(home, "b-00002-of-00002.gguf"), "1");
    await writeFile(join(home, "folder-model", "config.json"), "{}");
    await writeFile(join(home, "folder-model", "model.safetensors"), "1");
  });

  test("a folder shows folders and models, and nothing else", async () => {
    const { path, parent, entries } = await browseFolder(undefined, platform);
    expect([path, parent]).toEqual([join(cache, "home"), cache]);
    expect(entries.map(({ name, kind }) => [name, kind])).toEqual([
      ["Downloads", "folder"],
      ["b-00001-of-00002.gguf", "model"],
      ["folder-model", "model"],
    ]);
    await expect(browseFolder(join(cache, "none"), platform)).rejects.toThrow("cannot be opened");
  });

  test("only models can be opened", async () => {
    const home = join(cache, "home");
    const good = join(home, "Downloads", "deep", "a.gguf");
    expect(await checkModelPath(` "${good}" `, platform)).toBe(good);
    expect(await checkModelPath(join(home, "folder-model"), platform)).toMatch(/folder-model$/);
    await expect(checkModelPath(join(home, "letter.txt"), platform)).rejects.toThrow(
      "is not a model file",
    );
    await expect(checkModelPath(home, platform)).rejects.toThrow("holds no model");
    await expect(checkModelPath("/no/such.gguf", platform)).rejects.toThrow(
      "there is no file or folder",
    );
  });

  test("a file is found by its name and size", async () => {
    const good = join(cache, "home", "Downloads", "deep", "a.gguf");
    expect(await findFile("a.gguf", 3, platform)).toEqual([good]);
    expect(await findFile("a.gguf", 4, platform)).toEqual([]);
    expect(await findFile("letter.txt", 7, platform)).toEqual([]);
  });
});
