// The hub's HTTP API: pages of lists, strange answers, and whom the token is told.
// Held against: a hub on this machine, whose answers the test gives.

import { expect, test } from "vitest";
import { fileDownloadInfo, HubApiError, listFiles, listModels } from "../../src/catalog/hub-api.ts";

interface Asked {
  url: string;
  authorization: string | null;
}

/** A hub that gives these answers, one for each question. */
function hubWith(...answers: Response[]) {
  const log: Asked[] = [];
  const place = {
    hubUrl: "https://hub.test",
    accessToken: "secret",
    fetch: (async (url: string, init: RequestInit) => {
      log.push({ url, authorization: new Headers(init.headers).get("authorization") });
      return answers.shift() ?? new Response("gone", { status: 410 });
    }) as typeof fetch,
  };
  return { place, log };
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

test("a list goes on from page to page, at the hub and nowhere else", async () => {
  const file = (path: string) => ({ path, type: "file", size: 3, oid: "x" });
  const link = (url: string) => ({ headers: { Link: `<${url}>; rel="next"` } });
  const { place, log } = hubWith(
    Response.json([file("a.gguf")], link("https://hub.test/api/more?cursor=1")),
    Response.json([file("b.gguf")], link("https://elsewhere.test/api/more")),
  );
  const files = await all(listFiles({ ...place, repo: "o/r", recursive: true }));
  expect(files.map(({ path }) => path)).toEqual(["a.gguf", "b.gguf"]);
  expect(log).toEqual([
    {
      url: "https://hub.test/api/models/o/r/tree/main?recursive=true",
      authorization: "Bearer secret",
    },
    { url: "https://hub.test/api/more?cursor=1", authorization: "Bearer secret" },
  ]);
});

test("models are found by words and tags, no more than asked for", async () => {
  const { place, log } = hubWith(
    Response.json([
      { id: "o/one", downloads: 5, likes: 2, gated: "auto", lastModified: "2026-05-04T03:02:01Z" },
      { id: "o/two", gated: "what?" },
      { id: "o/three" },
    ]),
  );
  const search = { query: "tiny llama", tags: ["gguf"] };
  const [one, two, ...more] = await all(
    listModels({ ...place, search, sort: "downloads", limit: 2 }),
  );
  expect(one).toEqual({
    name: "o/one",
    downloads: 5,
    likes: 2,
    gated: "auto",
    updatedAt: new Date("2026-05-04T03:02:01Z"),
  });
  expect(two).toMatchObject({ name: "o/two", downloads: 0, likes: 0, gated: false });
  expect(more).toEqual([]);
  const query = new URL(log[0]!.url).searchParams;
  expect([query.get("search"), query.get("filter"), query.get("limit")]).toEqual([
    "tiny llama",
    "gguf",
    "2",
  ]);
});

test.each([
  ["no list", Response.json({ error: "x" })],
  ["a file without a path", Response.json([null])],
  ["HTTP status 503", new Response("busy", { status: 503 })],
])("%s is an error of the hub's", async (what, answer) => {
  const { place } = hubWith(answer);
  const error = await all(listFiles({ ...place, repo: "o/r" })).catch((caught) => caught);
  expect(error).toBeInstanceOf(HubApiError);
  expect(error.message).toBe(`${what} from hub.test`);
});

test("a path's odd characters stay in the path", async () => {
  const headers = { "content-range": "bytes 0-0/7", etag: '"e"' };
  const { place, log } = hubWith(new Response("a", { status: 206, headers }));
  const info = await fileDownloadInfo({ ...place, repo: "o/r", path: "a b/c?d#e.gguf" });
  expect(info).toEqual({ url: log[0]!.url, size: 7, etag: '"e"' });
  expect(log[0]!.url).toBe("https://hub.test/o/r/resolve/main/a%20b/c%3Fd%23e.gguf");
});
