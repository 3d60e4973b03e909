// A local server that answers like the Hugging Face hub (search, tree, paths-info, resolve with Range) and like an npm
// registry (packuments, tarballs), and misbehaves on demand: cuts connections, ignores ranges, refuses, changes its files.

import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface LoggedRequest {
  method: string;
  path: string;
  range: string | undefined;
  authorization: string | undefined;
}

export class DownloadServer {
  /** Path on the server ("owner/repo/file.gguf", "pkg/-/pkg-1.0.0.tgz") to bytes. */
  readonly files: Map<string, Uint8Array> = new Map();
  /** npm packages: name to its packument. */
  readonly packuments: Map<string, unknown> = new Map();
  readonly log: LoggedRequest[] = [];
  /** Bytes of a body after which each of the next connections is cut. */
  cuts: number[] = [];
  /** Body bytes after which the server stops sending, without hanging up. */
  stallAfter: number | undefined;
  ignoreRanges = false;
  /** Where bodies really are, as the hub keeps its large files on a storage host. */
  redirectTo: string | undefined;
  /** The hash that the hub states; undefined: the true one. */
  statedSha256: string | undefined;
  /** Repositories that only who has this token may see. */
  readonly gated: Map<string, string> = new Map();
  /** Status for the next requests, in order. */
  refusals: number[] = [];
  url = "";
  #server: Server | undefined;

  async start(): Promise<void> {
    this.#server = createServer((request, response) => this.#answer(request, response));
    await new Promise<void>((done) => this.#server!.listen(0, "127.0.0.1", done));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((done) => this.#server?.close(done));
  }

  /** Requests for bytes of a body, not those about it (the hub's client probes with bytes=0-0). */
  bodyRequests(): LoggedRequest[] {
    return this.log.filter(({ method, range }) => method === "GET" && range !== "bytes=0-0");
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const path = decodeURIComponent(request.url!.slice(1).split("?")[0]!);
    const { range, authorization } = request.headers;
    this.log.push({ method: request.method!, path, range, authorization });
    const refusal = this.refusals.shift();
    if (refusal !== undefined) {
      response.writeHead(refusal).end("refused");
      return;
    }
    const repo = /^(?:api\/models\/)?([^/]+\/[^/]+)(?=\/)/.exec(path)?.[1] ?? "";
    const key = this.gated.get(repo);
    if (key !== undefined && authorization !== `Bearer ${key}`) {
      response.writeHead(401, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ error: `Access to model ${repo} is restricted.` }));
      return;
    }
    if (path === "api/models") {
      this.#search(request, response);
      return;
    }
    const tree = /^api\/models\/([^/]+\/[^/]+)\/tree\/(.+)$/.exec(path);
    if (tree) {
      this.#tree(response, tree[1]!);
      return;
    }
    const info = /^api\/models\/(.+)\/paths-info\/(.+)$/.exec(path);
    if (info) {
      this.#pathsInfo(request, response, info[1]!);
      return;
    }
    const packument = this.packuments.get(path);
    if (packument) {
      response.writeHead(200, { "Content-Type": "application/json" });
      response.end(JSON.stringify(packument));
      return;
    }
    if (this.redirectTo && path.includes("/resolve/")) {
      response.writeHead(302, { Location: `${this.redirectTo}/${path}` }).end();
      return;
    }
    const file = this.files.get(path.replace(/\/resolve\/[^/]+\//, "/"));
    if (file) this.#body(request, response, file);
    else response.writeHead(404, { "X-Error-Code": "EntryNotFound" }).end();
  }

  #search(request: IncomingMessage, response: ServerResponse): void {
    const query = new URL(request.url!, this.url).searchParams;
    const words = (query.get("search") ?? "").toLowerCase().split(" ");
    const repos = new Set([...this.files.keys()].map((key) => key.split("/", 2).join("/")));
    const found = [...repos].filter((repo) =>
      words.every((word) => repo.toLowerCase().includes(word)),
    );
    const facts = {
      private: false,
      likes: 7,
      downloads: 1234,
      lastModified: "2026-05-04T03:02:01Z",
    };
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(
      JSON.stringify(
        found
          .slice(0, Number(query.get("limit")))
          .map((id) => ({ _id: id, id, gated: this.gated.has(id) && "manual", ...facts })),
      ),
    );
  }

  #tree(response: ServerResponse, repo: string): void {
    const paths = [...this.files.keys()].filter((key) => key.startsWith(`${repo}/`));
    response.writeHead(paths.length > 0 ? 200 : 404, { "Content-Type": "application/json" });
    const entries = paths.map((key) => {
      const file = this.files.get(key)!;
      const lfs = { oid: this.statedSha256 ?? sha256(file), size: file.length, pointerSize: 1 };
      return { type: "file", oid: "0", path: key.slice(repo.length + 1), size: file.length, lfs };
    });
    response.end(JSON.stringify(paths.length > 0 ? entries : { error: "Repository not found" }));
  }

  #pathsInfo(request: IncomingMessage, response: ServerResponse, repo: string): void {
    let text = "";
    request.on("data", (piece) => {
      text += piece;
    });
    request.on("end", () => {
      if (![...this.files.keys()].some((key) => key.startsWith(`${repo}/`))) {
        response.writeHead(404, { "Content-Type": "application/json" });
        response.end(JSON.stringify({ error: "Repository not found" }));
        return;
      }
      const { paths } = JSON.parse(text) as { paths: string[] };
      const found = paths.flatMap((path) => {
        const file = this.files.get(`${repo}/${path}`);
        if (!file) return [];
        const oid = this.statedSha256 ?? sha256(file);
        return [
          { path, type: "file", oid: "0", size: file.length, lfs: { oid, size: file.length } },
        ];
      });
      response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(found));
    });
  }

  #body(request: IncomingMessage, response: ServerResponse, file: Uint8Array): void {
    const etag = `"${sha256(file)}"`;
    const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
    const sameFile = !request.headers["if-range"] || request.headers["if-range"] === etag;
    const headers: Record<string, string | number> = { ETag: etag, "X-Linked-ETag": etag };
    let body = file;
    if (match && sameFile && !(this.ignoreRanges && match[2] === "")) {
      const start = Number(match[1]);
      const end = match[2] === "" ? file.length - 1 : Number(match[2]);
      headers["Content-Range"] = `bytes ${start}-${end}/${file.length}`;
      body = file.subarray(start, end + 1);
      headers["Content-Length"] = body.length;
      response.writeHead(206, headers);
    } else {
      headers["Content-Length"] = body.length;
      response.writeHead(200, headers);
    }
    const probe = request.headers.range === "bytes=0-0";
    const cut = probe ? undefined : this.cuts.shift();
    if (cut !== undefined) response.write(body.subarray(0, cut), () => response.destroy());
    else if (!probe && this.stallAfter !== undefined)
      response.write(body.subarray(0, this.stallAfter));
    else response.end(body);
  }
}

export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Bytes that look like weights: no two stretches alike, the same on every run. */
export function noise(length: number, seed = 1): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = seed;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[i] = state >>> 24;
  }
  return bytes;
}
