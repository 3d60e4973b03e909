// A web site with Lantern on it: the built package and the one dependency that it has in a browser, in a folder as npm
// would lay it out, and a small static server for a folder and for model files.
//
// A browser resolves no package names in a worker's imports (import maps are for pages), so whatever serves the package
// as npm lays it out must: under node_modules this server puts an address in place of each name, as development servers
// do. Files are otherwise sent as they are.

import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const checkout: string = fileURLToPath(new URL("../../", import.meta.url));
const jinja = "@huggingface/jinja";

declare global {
  interface Window {
    lantern: typeof import("../../src/index.ts");
  }
}

/** The page: window.lantern is the public API. */
const page = `<!doctype html><title>Lantern</title><input type="file">
<script type="module">window.lantern = await import("/node_modules/lantern/dist/src/index.js");</script>`;

const types: Readonly<Record<string, string>> = {
  ".js": "text/javascript",
  ".json": "application/json",
  ".wasm": "application/wasm",
};

/** A folder with a page and node_modules/lantern, built from this checkout, and what it needs; remove() deletes it. */
export function buildSite(): { folder: string; remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), "lantern-site-"));
  const modules = join(folder, "node_modules");
  const tsc = join(checkout, "node_modules/typescript/bin/tsc");
  const outDir = join(modules, "lantern/dist");
  // Without checking types, which takes three quarters of the time and is done elsewhere.
  const args = ["-p", "tsconfig.build.json", "--noCheck", "--outDir", outDir];
  execFileSync(process.execPath, [tsc, ...args], { cwd: checkout });
  writeFileSync(join(folder, "index.html"), page);
  cpSync(join(checkout, "package.json"), join(modules, "lantern/package.json"));
  cpSync(join(checkout, "node_modules", jinja), join(modules, jinja), { recursive: true });
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

export class SiteServer {
  readonly #folder: string;
  readonly #isolated: boolean;
  readonly #server: Server;
  readonly #read = new Map<string, Uint8Array | undefined>();
  /** Files outside the folder, by their path on the server. */
  readonly files: Map<string, string> = new Map();
  /** Paths that are answered with 404 though their file is there. */
  readonly missing: Set<string> = new Set();
  /** Every path that was asked for. */
  readonly requests: string[] = [];

  private constructor(folder: string, isolated: boolean) {
    this.#folder = folder;
    this.#isolated = isolated;
    this.#server = createServer((request, response) => this.#answer(request, response));
    // On a busy machine a browser may come back to a connection later than after Node's five seconds.
    this.#server.keepAliveTimeout = 0;
  }

  /** Serves the folder at a port of its own; `isolated`: with the headers that give a page shared memory. */
  static async start(folder: string, { isolated }: { isolated: boolean }): Promise<SiteServer> {
    const site = new SiteServer(folder, isolated);
    await new Promise<void>((resolve) => site.#server.listen(0, "127.0.0.1", resolve));
    return site;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const path = new URL(request.url!, this.url).pathname;
    this.requests.push(path);
    if (this.#isolated) {
      response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
      response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
    }
    if (!this.#read.has(path)) this.#read.set(path, this.#load(path));
    const body = this.missing.has(path) ? undefined : this.#read.get(path);
    if (body === undefined) {
      response.writeHead(404).end();
      return;
    }
    response.setHeader("Content-Type", types[extname(path)] ?? "text/html");
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
    if (!range) {
      response.end(body);
      return;
    }
    const [first, last] = [Number(range[1]), Math.min(Number(range[2]), body.length - 1)];
    response.writeHead(206, { "Content-Range": `bytes ${first}-${last}/${body.length}` });
    response.end(body.subarray(first, last + 1));
  }

  #load(path: string): Uint8Array | undefined {
    const file = this.files.get(path) ?? join(this.#folder, path.replace(/\/$/, "/index.html"));
    try {
      const bytes = readFileSync(file);
      const hasNames = path.startsWith("/node_modules/") && extname(path) === ".js";
      return hasNames ? withAddresses(bytes) : bytes;
    } catch (error) {
      // Whatever else went wrong is no missing file.
      const { code = "" } = error as NodeJS.ErrnoException;
      if (!["ENOENT", "ENOTDIR", "EISDIR"].includes(code)) console.error(`${file}: ${error}`);
      return undefined;
    }
  }
}

/** Names of packages become addresses. */
function withAddresses(script: Uint8Array): Uint8Array {
  const text = Buffer.from(script).toString("utf8");
  return Buffer.from(
    text.replaceAll(`from "${jinja}"`, `from "/node_modules/${jinja}/dist/index.js"`),
  );
}
