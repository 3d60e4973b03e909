// The few calls to the Hugging Face hub's HTTP API that Lantern needs: the entry at a path of a repository, the location of a
// file's bytes, all files, and a search for repositories. The hub's own npm package can do this too, but brings ten more packages
// and a command (`hfjs`) into every project that installs Lantern. Arguments and results have the same names as in that package.
//
// Failures are errors with the HTTP status; the caller turns them into a message.

import { withoutEnd } from "../base/without-end.ts";

export const HUB_URL = "https://huggingface.co";

/** The hub's address, the token, and the fetch function to use. */
export interface HubPlace {
  hubUrl?: string;
  accessToken?: string;
  fetch: typeof globalThis.fetch;
}

export interface HubRepo extends HubPlace {
  /** "owner/name" */
  repo: string;
  /** Branch, tag or commit. */
  revision?: string;
}

export interface HubPath {
  path: string;
  type: string;
  size: number;
  /** For a large file: its SHA-256 and its real size. */
  lfs?: { oid: string; size: number };
}

export interface HubDownload {
  url: string;
  size: number;
  etag: string;
}

export interface HubModel {
  /** "owner/name" */
  name: string;
  downloads: number;
  likes: number;
  /** Whether its licence must first be accepted on its page. */
  gated: false | "auto" | "manual";
  updatedAt: Date;
}

/** The hub answered, but with an error or something unexpected. */
export class HubApiError extends Error {
  readonly statusCode: number;

  constructor(url: string, statusCode: number, what: string) {
    super(`${what} from ${new URL(url).host}`);
    this.statusCode = statusCode;
  }
}

/** The repository's entries at these paths; missing ones are left out. */
export async function pathsInfo(asked: HubRepo & { paths: string[] }): Promise<HubPath[]> {
  const url = `${apiOf(asked)}/paths-info/${revisionOf(asked)}`;
  const body = JSON.stringify({ paths: asked.paths });
  const headers = { "Content-Type": "application/json" };
  const { items } = await askJson(asked, url, { method: "POST", headers, body });
  return items.map((item) => pathOf(item, url));
}

/** The URL and size of a file; null if there is no such file. */
export async function fileDownloadInfo(
  asked: HubRepo & { path: string },
): Promise<HubDownload | null> {
  const path = asked.path.split("/").map(encodeURIComponent).join("/");
  const url = `${hubOf(asked)}/${asked.repo}/resolve/${revisionOf(asked)}/${path}`;
  const response = await ask(asked, url, { headers: { Range: "bytes=0-0" } });
  const isAbsent = response.headers.get("X-Error-Code") === "EntryNotFound";
  await response.body?.cancel();
  if (response.status === 404 && isAbsent) return null;
  checkStatus(response, url);
  const { headers } = response;
  const size = Number(headers.get("content-range")?.split("/")[1] || Number.NaN);
  const etag = headers.get("X-Linked-ETag") ?? headers.get("ETag");
  if (!Number.isSafeInteger(size) || !etag) {
    throw new HubApiError(url, response.status, "an answer without a size and an ETag");
  }
  // A storage host that the hub redirects to may need other headers, and its URLs expire: keep the hub's own URL.
  const isHub = response.url !== "" && new URL(response.url).origin === new URL(url).origin;
  return { url: isHub ? response.url : url, size, etag };
}

/** Everything in the repository. */
export async function* listFiles(
  asked: HubRepo & { recursive?: boolean },
): AsyncGenerator<HubPath, void, undefined> {
  const query = `recursive=${asked.recursive === true}`;
  const first = `${apiOf(asked)}/tree/${revisionOf(asked)}?${query}`;
  for await (const { item, url } of pages(asked, first)) yield pathOf(item, url);
}

/** Searches for model repositories. */
export async function* listModels(
  asked: HubPlace & {
    search: { query: string; tags?: readonly string[] };
    sort: "downloads" | "likes" | "lastModified";
    limit: number;
  },
): AsyncGenerator<HubModel, void, undefined> {
  const { search, sort, limit } = asked;
  const wanted = ["gated", "downloads", "likes", "lastModified"];
  const query = new URLSearchParams([
    ["search", search.query],
    ["sort", sort],
    ["limit", String(Math.min(limit, 500))],
    ...(search.tags ?? []).map((tag) => ["filter", tag]),
    ...wanted.map((field) => ["expand", field]),
  ]);
  let left = limit;
  for await (const { item, url } of pages(asked, `${hubOf(asked)}/api/models?${query}`)) {
    if (left-- <= 0) return;
    yield modelOf(item, url);
  }
}

function hubOf({ hubUrl = HUB_URL }: HubPlace): string {
  return withoutEnd(hubUrl, "/");
}

function apiOf(asked: HubRepo): string {
  return `${hubOf(asked)}/api/models/${asked.repo}`;
}

function revisionOf({ revision = "main" }: HubRepo): string {
  return encodeURIComponent(revision);
}

function ask(place: HubPlace, url: string, init: RequestInit): Promise<Response> {
  const { accessToken } = place;
  const headers = new Headers(init.headers);
  if (accessToken) headers.set("Authorization", `Bearer ${accessToken}`);
  return place.fetch(url, { ...init, headers });
}

function checkStatus({ ok, status }: Response, url: string): void {
  if (!ok) throw new HubApiError(url, status, `HTTP status ${status}`);
}

/** A list, and the URL of its next page if there is one. */
async function askJson(
  place: HubPlace,
  url: string,
  init: RequestInit,
): Promise<{ items: unknown[]; next: string | undefined }> {
  const response = await ask(place, url, init);
  if (!response.ok) await response.body?.cancel();
  checkStatus(response, url);
  const items: unknown = await response.json();
  if (!Array.isArray(items)) throw new HubApiError(url, response.status, "no list");
  const next = /<([^>]+)>\s*;\s*rel="?next"?/.exec(response.headers.get("Link") ?? "")?.[1];
  return { items, next };
}

async function* pages(
  place: HubPlace,
  first: string,
): AsyncGenerator<{ item: unknown; url: string }, void, undefined> {
  for (let url: string | undefined = first; url !== undefined; ) {
    const { items, next }: Awaited<ReturnType<typeof askJson>> = await askJson(place, url, {});
    for (const item of items) yield { item, url };
    // The token is sent to the hub only.
    const isHub = next !== undefined && URL.parse(next)?.origin === new URL(first).origin;
    url = isHub ? next : undefined;
  }
}

function pathOf(item: unknown, url: string): HubPath {
  const { path, type, size, lfs } = (item ?? {}) as Partial<HubPath>;
  if (typeof path !== "string" || typeof type !== "string") {
    throw new HubApiError(url, 200, "a file without a path");
  }
  const isLarge = typeof lfs?.oid === "string" && typeof lfs.size === "number";
  const bytes = typeof size === "number" ? size : 0;
  return { path, type, size: bytes, ...(isLarge && { lfs: { oid: lfs.oid, size: lfs.size } }) };
}

function modelOf(item: unknown, url: string): HubModel {
  const model = (item ?? {}) as Record<string, unknown>;
  if (typeof model.id !== "string") throw new HubApiError(url, 200, "a model without a name");
  const count = (value: unknown): number => (typeof value === "number" ? value : 0);
  const gated = model.gated === "auto" || model.gated === "manual" ? model.gated : false;
  const { downloads, likes, lastModified } = model;
  return {
    name: model.id,
    downloads: count(downloads),
    likes: count(likes),
    gated,
    updatedAt: new Date(typeof lastModified === "string" ? lastModified : Number.NaN),
  };
}
