// The byte sources: local files, Blobs, and HTTP with everything a server can do wrong (a real server on localhost).
// Held against: the bytes of a file that the test made.

import { mkdir, mkdtemp, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AbortedError, DisposedError, SourceError } from "../../src/base/errors.ts";
import { stallMs } from "../../src/base/stall.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import type { ModelSource } from "../../src/platform/platform.ts";
import { blobSource, filesModelSource } from "../../src/platform/sources/blob.ts";
import { httpModelSource } from "../../src/platform/sources/http-range.ts";
import { nodeModelSource, openNodeFile } from "../../src/platform/sources/node-file.ts";
import { countingTensor, ggufBytes } from "./support.ts";

const content: Uint8Array<ArrayBuffer> = Uint8Array.from({ length: 1000 }, (_, i) => i);
const model: Uint8Array<ArrayBuffer> = await ggufBytes(
  { "general.architecture": { type: "string", value: "llama" } },
  [countingTensor("t", "f32", [64], 7)],
);

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lantern-sources-"));
  await writeFile(join(folder, "data.bin"), content);
  await writeFile(join(folder, "m.gguf"), model);
  await mkdir(join(folder, "sub"));
  await symlink(join(folder, "data.bin"), join(folder, "link.bin"));
});
afterAll(async () => {
  await rm(folder, { recursive: true });
});

/** What every source must do, whatever is behind it; "data.bin" has the 1,000 bytes above. */
async function expectSourceRules(source: ModelSource): Promise<void> {
  expect(await source.has("data.bin")).toBe(true);
  expect(await source.has("absent.bin")).toBe(false);
  await expect(source.open("absent.bin")).rejects.toThrow(SourceError);
  for (const name of ["../data.bin", "..", ".", "", "a/b", "a\\b", "/etc/passwd", "a\0b"]) {
    await expect(source.has(name)).rejects.toThrow("is not a plain name");
    await expect(source.open(name)).rejects.toThrow("is not a plain name");
  }
  const file = await source.open("data.bin");
  expect(file.size).toBe(1000);
  expect(await file.read(0, 1000)).toEqual(content);
  expect([...(await file.read(250, 3))]).toEqual([250, 251, 252]);
  expect((await file.read(1000, 0)).byteLength).toBe(0);
  const target = new Uint8Array(6).fill(9);
  await file.readInto(999, target.subarray(2, 3));
  expect([...target]).toEqual([9, 9, 999 & 255, 9, 9, 9]);
  const shared = new Uint8Array(new SharedArrayBuffer(4));
  await file.readInto(10, shared);
  expect([...shared]).toEqual([10, 11, 12, 13]);
  const together = await Promise.all([file.read(0, 500), file.read(500, 500), file.read(100, 1)]);
  expect(together.map((bytes) => bytes[0])).toEqual([0, 500 & 255, 100]);
  for (const [offset, length] of [
    [1000, 1],
    [0, 1001],
    [-1, 1],
    [0, -1],
    [0.5, 1],
    [Number.NaN, 1],
    [2 ** 60, 1],
  ]) {
    await expect(file.read(offset!, length!)).rejects.toThrow("the file has 1000 bytes");
  }
  await expect(file.readInto(996, new Uint8Array(5))).rejects.toThrow(SourceError);
  await file.close();
  await file.close();
  await expect(file.read(0, 1)).rejects.toThrow(DisposedError);
}

describe("local files", () => {
  test("follow the rules, from a file and from its folder", async () => {
    await expectSourceRules(await nodeModelSource(join(folder, "data.bin")));
    await expectSourceRules(await nodeModelSource(folder));
  });

  test("main and list", async () => {
    const file = await nodeModelSource(join(folder, "m.gguf"));
    expect(file.main).toBe("m.gguf");
    expect(await file.list()).toEqual(["data.bin", "link.bin", "m.gguf"]);
    expect(await file.has("sub")).toBe(false);
    expect(await file.has("link.bin")).toBe(true);
    expect((await nodeModelSource(folder)).main).toBeUndefined();
  });

  test("what is not there, and what is no file", async () => {
    await expect(nodeModelSource(join(folder, "absent"))).rejects.toThrow("no such file or folder");
    await expect(nodeModelSource(join(folder, "data.bin", "x"))).rejects.toThrow(SourceError);
    await expect(openNodeFile(join(folder, "sub"))).rejects.toThrow(SourceError);
    await expect(nodeModelSource("/dev/null")).rejects.toThrow(
      "neither a regular file nor a folder",
    );
  });

  test("a file that shrinks while it is open", async () => {
    const path = join(folder, "shrinking");
    await writeFile(path, content);
    const file = await openNodeFile(path);
    await truncate(path, 400);
    await expect(file.read(300, 200)).rejects.toThrow(
      "the file ends at byte 400, but had 1000 bytes",
    );
    await file.close();
    await rm(path);
  });
});

describe("blobs", () => {
  test("follow the rules", async () => {
    const files = [new File([content], "data.bin"), new File([model], "m.gguf")];
    const source = filesModelSource(files);
    expect(source.main).toBeUndefined();
    expect(await source.list()).toEqual(["data.bin", "m.gguf"]);
    await expectSourceRules(source);
    expect(filesModelSource([files[0]!]).main).toBe("data.bin");
    expect(blobSource("x", new Blob([content])).size).toBe(1000);
  });

  test("a model from a File", async () => {
    const opened = await openModelFile(filesModelSource([new File([model], "m.gguf")]));
    expect(opened.metadata.string("general.architecture")).toBe("llama");
  });

  test("no files, and two of one name", () => {
    expect(() => filesModelSource([])).toThrow(SourceError);
    const twice = [new File([], "a"), new File([], "a")];
    expect(() => filesModelSource(twice)).toThrow("two files are called");
  });
});

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

interface TestServer {
  url: string;
  requests: string[];
  /** How the next requests are answered; ranges of `files` unless a test says otherwise. */
  handler: Handler;
}

async function startServer(handler: Handler): Promise<{ server: Server; state: TestServer }> {
  const state: TestServer = { url: "", requests: [], handler };
  const server = createServer((request, response) => {
    state.requests.push(`${request.url} ${request.headers.range}`);
    state.handler(request, response);
  });
  await new Promise<void>((done) => {
    server.listen(0, "127.0.0.1", done);
  });
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { server, state };
}

const remote: Record<string, Uint8Array> = {
  "/models/data.bin": content,
  "/models/m.gguf": model,
  "/models/empty.bin": new Uint8Array(0),
};

function serveRange(request: IncomingMessage, response: ServerResponse): void {
  const bytes = remote[new URL(request.url!, "http://x").pathname];
  if (!bytes) return void response.writeHead(404).end("nothing here");
  const [first, last] = /bytes=(\d+)-(\d+)/
    .exec(request.headers.range ?? "")!
    .slice(1)
    .map(Number);
  if (first! >= bytes.byteLength) {
    return void response.writeHead(416, { "Content-Range": `bytes */${bytes.byteLength}` }).end();
  }
  response.writeHead(206, {
    "Content-Range": `bytes ${first}-${last}/${bytes.byteLength}`,
    ETag: '"1"',
  });
  response.end(bytes.subarray(first, last! + 1));
}

describe("http", () => {
  let server: Server;
  let state: TestServer;
  beforeAll(async () => {
    ({ server, state } = await startServer(serveRange));
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });

  /** An open data.bin, after which the server behaves as `handler` says. */
  async function openThen(handler: Handler) {
    state.handler = serveRange;
    const options = { stallMs: 200, retryMs: 1 };
    const file = await httpModelSource(`${state.url}/models/data.bin`, options).open("data.bin");
    state.handler = handler;
    return file;
  }

  test("follow the rules, from a file and from its folder", async () => {
    state.handler = serveRange;
    await expectSourceRules(httpModelSource(`${state.url}/models/data.bin`));
    await expectSourceRules(httpModelSource(new URL(`${state.url}/models/`)));
  });

  test("main, list, query, and one probe for has() and open()", async () => {
    state.handler = serveRange;
    const source = httpModelSource(`${state.url}/models/m.gguf?token=abc`);
    expect(source.main).toBe("m.gguf");
    expect(await source.list()).toBeUndefined();
    state.requests.length = 0;
    expect(await source.has("data.bin")).toBe(true);
    const file = await source.open("data.bin");
    await file.read(5, 10);
    expect(state.requests).toEqual([
      "/models/data.bin?token=abc bytes=0-0",
      "/models/data.bin?token=abc bytes=5-14",
    ]);
    expect(httpModelSource(`${state.url}/models/`).main).toBeUndefined();
    expect(httpModelSource(`${state.url}/models/a%20b.gguf`).main).toBe("a b.gguf");
  });

  test("a model over HTTP, in a few requests", async () => {
    state.handler = serveRange;
    state.requests.length = 0;
    const opened = await openModelFile(httpModelSource(`${state.url}/models/m.gguf`));
    const bytes = new Uint8Array(4);
    await opened.readTensor(opened.tensors.get("t")!, bytes, 10);
    expect([...bytes]).toEqual([17, 18, 19, 20]);
    expect(state.requests.length).toBeLessThanOrEqual(4);
  });

  test("an empty file", async () => {
    state.handler = serveRange;
    const file = await httpModelSource(`${state.url}/models/`).open("empty.bin");
    expect(file.size).toBe(0);
  });

  test("addresses that are none", () => {
    for (const url of ["file:///etc/passwd", "model.gguf", "http://"]) {
      expect(() => httpModelSource(url)).toThrow(SourceError);
    }
    expect(() => httpModelSource("http://x/a%2Fb")).toThrow("is not a plain name");
    expect(() => httpModelSource("http://x/%ff")).toThrow("percent-encoding");
  });

  const range = (first: number, last: number, total: number | string) => ({
    "Content-Range": `bytes ${first}-${last}/${total}`,
  });
  const atOpen: [what: string, handler: Handler, message: string][] = [
    [
      "a server that ignores Range",
      (_, response) => void response.writeHead(200).end(content),
      "the server ignored the Range header",
    ],
    ["404", (_, response) => void response.writeHead(404).end(), 'there is no "data.bin"'],
    ["403", (_, response) => void response.writeHead(403).end(), "HTTP 403"],
    ["500", (_, response) => void response.writeHead(500).end(), "HTTP 500"],
    [
      "206 without Content-Range",
      (_, response) => void response.writeHead(206).end("x"),
      "Content-Range is null",
    ],
    [
      "an unknown total",
      (_, response) => void response.writeHead(206, range(0, 0, "*")).end("x"),
      'expected "bytes first-last/total"',
    ],
    ["a connection that is cut", (request) => void request.socket.destroy(), "failed"],
  ];
  test.each(atOpen)("open: %s", async (_what, handler, message) => {
    state.handler = handler;
    const opening = httpModelSource(`${state.url}/models/data.bin`).open("data.bin");
    await expect(opening).rejects.toThrow(SourceError);
    await expect(opening).rejects.toThrow(message);
  });

  const atRead: [what: string, handler: Handler, message: string][] = [
    [
      "another range",
      (_, response) => void response.writeHead(206, range(0, 9, 1000)).end("0123456789"),
      "asked for bytes 100-109, the server sent 0-9",
    ],
    [
      "another size",
      (_, response) => void response.writeHead(206, range(100, 109, 999)).end("0123456789"),
      "the file changed while it was read (it had 1000 bytes, now 999)",
    ],
    [
      "another version",
      (_, response) =>
        void response.writeHead(206, { ...range(100, 109, 1000), ETag: '"2"' }).end("0123456789"),
      "the file changed while it was read",
    ],
    [
      "no bytes, again and again",
      (_, response) => void response.writeHead(206, range(100, 109, 1000)).end(""),
      "the connection ended after 0 of 10 bytes",
    ],
    [
      "too many bytes",
      (_, response) => void response.writeHead(206, range(100, 109, 1000)).end("0123456789abc"),
      "the server sent more than the 10 bytes",
    ],
    [
      "the whole file",
      (_, response) => void response.writeHead(200).end(content),
      "the server ignored the Range header",
    ],
    ["404", (_, response) => void response.writeHead(404).end(), "HTTP 404"],
    [
      "a connection that is cut before every body",
      (_, response) => {
        response.writeHead(206, { ...range(100, 109, 1000), "Content-Length": "10" });
        response.flushHeaders();
        setTimeout(() => response.destroy(), 20);
      },
      "failed",
    ],
  ];
  test.each(atRead)("read: %s", async (_what, handler, message) => {
    const file = await openThen(handler);
    const reading = file.read(100, 10);
    await expect(reading).rejects.toThrow(SourceError);
    await expect(reading).rejects.toThrow(message);
  });

  test("a server that stands still or is cut off in the middle is asked for the rest", async () => {
    let answers = 0;
    const file = await openThen((request, response) => {
      const [first] = /\d+/.exec(request.headers.range!)!;
      const start = Number(first);
      answers++;
      if (answers > 3) return serveRange(request, response);
      response.writeHead(206, { ...range(start, 899, 1000), ETag: '"1"' });
      // 100 bytes each: then nothing more, a cut, an early end.
      response.write(content.subarray(start, start + 100), () => {
        if (answers === 2) response.destroy();
        if (answers === 3) response.end();
      });
    });
    state.requests.length = 0;
    expect(await file.read(100, 800)).toEqual(content.slice(100, 900));
    const ranges = state.requests.map((line) => line.split("bytes=")[1]);
    expect(ranges).toEqual(["100-899", "200-899", "300-899", "400-899"]);
  });

  test("a server that never sends anything is given up, with what to do", async () => {
    const file = await openThen(() => {});
    state.requests.length = 0;
    await expect(file.read(100, 10)).rejects.toThrow(
      "reading bytes 100-109 failed: nothing came for 0.2 s. Check the network",
    );
    expect(state.requests).toHaveLength(4);
    state.handler = () => {};
    const source = httpModelSource(`${state.url}/models/data.bin`, { stallMs: 50, advice: "Wait" });
    await expect(source.open("data.bin")).rejects.toThrow("nothing came for 0.05 s. Wait");
  });

  test("how long a server may stand still is checked", () => {
    expect([stallMs(undefined), stallMs(""), stallMs("0.5")]).toEqual([30_000, 30_000, 500]);
    for (const wrong of ["0", "-1", "soon", "1e9"]) {
      expect(() => stallMs(wrong)).toThrow(`LANTERN_HTTP_TIMEOUT: got "${wrong}", expected`);
    }
  });

  test("headers are sent, and a signal stops a read", async () => {
    const seen: (string | undefined)[] = [];
    state.handler = (request, response) => {
      seen.push(request.headers.authorization);
      serveRange(request, response);
    };
    const controller = new AbortController();
    const options = { headers: { Authorization: "Bearer x" }, signal: controller.signal };
    const file = await httpModelSource(`${state.url}/models/data.bin`, options).open("data.bin");
    expect(seen).toEqual(["Bearer x"]);
    state.handler = () => controller.abort(); // never answers
    await expect(file.read(0, 10)).rejects.toThrow(AbortedError);
  });
});
