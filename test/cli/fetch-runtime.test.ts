// The Node that the launcher downloads for itself: from a local registry, checked, tried out, then put into use. Instead of
// Node it is a shell script that says a version.
// Held against: a registry on this machine.

import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { fetchRuntime, type PinnedRuntime } from "../../apps/cli/fetch-runtime.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { DownloadServer, sha256 } from "../catalog/download-server.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const windows = process.platform === "win32";

describe.skipIf(windows)(`the Node for old ones${windows ? " [skipped: Windows]" : ""}`, () => {
  let server: DownloadServer;
  let folder: string;
  let terminal: FakeTerminal;
  let downloads: DownloadPlatform;

  beforeEach(async () => {
    server = new DownloadServer();
    await server.start();
    folder = fs.mkdtempSync(join(tmpdir(), "lantern-runtime-"));
    terminal = new FakeTerminal();
    const env = { npm_config_registry: server.url };
    downloads = { ...nodeDownloadPlatform(env), sleep: async () => {} };
  });
  afterEach(async () => {
    await server.stop();
    fs.rmSync(folder, { recursive: true });
  });

  /** Puts a package with this program into the registry. */
  function publish(script: string, pinned: Partial<PinnedRuntime> = {}): PinnedRuntime {
    const work = join(folder, "work");
    fs.mkdirSync(join(work, "package", "bin"), { recursive: true });
    fs.writeFileSync(join(work, "package", "bin", "node"), script);
    execFileSync("tar", ["-czf", "x.tgz", "package"], { cwd: work });
    server.files.set("a-node/-/x-9.8.7.tgz", fs.readFileSync(join(work, "x.tgz")));
    const tarball = `${server.url}/a-node/-/x-9.8.7.tgz`;
    server.packuments.set("a-node", {
      name: "a-node",
      versions: { "9.8.7": { dist: { tarball } } },
    });
    fs.rmSync(work, { recursive: true });
    return {
      version: "9.8.7",
      name: "node-v9.8.7-here",
      package: "a-node",
      file: "bin/node",
      bytes: script.length,
      packedBytes: 57_000_000,
      sha256: sha256(Buffer.from(script)),
      ...pinned,
    };
  }

  const good = "#!/bin/sh\necho v9.8.7\n";
  const fetchIt = (pinned: PinnedRuntime) => fetchRuntime(pinned, folder, terminal, downloads);

  test("is downloaded, checked, tried out, and only this user may run it", async () => {
    const path = join(folder, "node-v9.8.7-here");
    expect(await fetchIt(publish(good))).toEqual({ path });
    expect(fs.statSync(path).mode & 0o777).toBe(0o500);
    expect(fs.readdirSync(folder)).toEqual(["node-v9.8.7-here"]);
    expect(terminal.stderr).toBe(
      `Lantern runs fastest on Node.js 9.8.7. Downloading it once (57.0 MB) to ${folder}; LANTERN_RUNTIME=off prevents that\n`,
    );
  });

  test("takes the place of versions that nobody has used for a month, and of no others", async () => {
    const monthAgo = new Date(Date.now() - 31 * 24 * 3600 * 1000);
    for (const name of ["node-v9.0.0-here", "node-v9.1.0-here", "something-else"]) {
      fs.writeFileSync(join(folder, name), "");
      if (name !== "node-v9.1.0-here") fs.utimesSync(join(folder, name), monthAgo, monthAgo);
    }
    await fetchIt(publish(good));
    expect(fs.readdirSync(folder).sort()).toEqual([
      "node-v9.1.0-here",
      "node-v9.8.7-here",
      "something-else",
    ]);
  });

  test("other bytes than those pinned are never run", async () => {
    const ran = join(folder, "ran");
    const evil = publish(`#!/bin/sh\ntouch ${ran}; echo v9.8.7\n`, {
      sha256: sha256(Buffer.from("x")),
    });
    const { path, failed } = await fetchIt(evil);
    expect(path).toBe(undefined);
    expect(failed).toContain("sha256");
    expect(fs.existsSync(ran)).toBe(false);
    expect(fs.existsSync(join(folder, evil.name))).toBe(false);
  });

  test("one that does not run here is removed, and the reason is said", async () => {
    const { failed } = await fetchIt(publish("#!/bin/sh\necho no such library >&2; exit 127\n"));
    expect(failed).toBe(
      "the one that was downloaded does not run here (no such library); LANTERN_RUNTIME=off keeps Lantern from trying",
    );
    expect(fs.readdirSync(folder)).toEqual([]);
  });

  test("a registry that has none, and Ctrl-C", async () => {
    const pinned = publish(good);
    server.packuments.clear();
    expect((await fetchIt(pinned)).failed).toContain("HTTP status 404");
    const stopping = fetchIt(publish(good));
    terminal.pressCtrlC();
    expect(await stopping).toEqual({ stopped: true });
  });
});
