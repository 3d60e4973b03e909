// Where the code of others comes from: few packages, every one with a checksum, versions without ranges, and Nodes that are
// compared with what nodejs.org publishes (scripts/check-node-binaries.ts, here against a server of our own).

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { describe, expect, onTestFinished, test } from "vitest";
import { checkNodes, type PinnedNodes } from "../../scripts/check-node-binaries.ts";

const read = (path: string): string =>
  readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

interface Locked {
  version?: string;
  integrity?: string;
  resolved?: string;
  link?: boolean;
  dev?: boolean;
  optional?: boolean;
  devOptional?: boolean;
  hasInstallScript?: boolean;
}

const { packages } = JSON.parse(read("package-lock.json")) as { packages: Record<string, Locked> };
const installed = Object.entries(packages).filter(
  ([path, { link }]) => path.includes("node_modules/") && link !== true,
);

describe("packages", () => {
  test("every one has a strong checksum, and none comes from elsewhere than the registry", () => {
    expect(installed.length).toBeGreaterThan(50);
    for (const [path, { integrity, resolved }] of installed) {
      expect(integrity, path).toMatch(/^sha512-[A-Za-z0-9+/]{86}==$/);
      expect(resolved ?? "https:", path).toMatch(/^https:/); // no git, no file
    }
  });

  test("whoever installs Lantern gets these, and none of them runs a script", () => {
    const shipped = installed
      .filter(([, { dev, optional, devOptional }]) => !dev && !optional && !devOptional)
      .map(([path]) => path.replace(/^.*node_modules\//, ""));
    expect(shipped.toSorted()).toEqual([
      "@hono/node-server",
      "@huggingface/jinja",
      "commander",
      "hono",
      "zod",
    ]);
    for (const [path, locked] of installed) {
      if (!locked.dev) expect(locked.hasInstallScript ?? false, path).toBe(false);
    }
  });

  test.each(["package.json", "tools/runtime/package.json"])(
    "%s names versions, no ranges",
    (path) => {
      const json = JSON.parse(read(path)) as Record<string, Record<string, string> | undefined>;
      for (const kind of ["dependencies", "devDependencies", "optionalDependencies"]) {
        for (const [name, version] of Object.entries(json[kind] ?? {})) {
          expect(version, name).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
        }
      }
    },
  );

  test("the Nodes that the launcher downloads are the ones that a checkout installs", () => {
    const runtimes = JSON.parse(read("bin/runtimes.json")) as {
      version: string;
      platforms: Record<string, { package: string; integrity: string; sha256: string }>;
    };
    for (const pin of Object.values(runtimes.platforms)) {
      const locked = packages[`node_modules/${pin.package}`];
      expect(locked, pin.package).toMatchObject({ version: runtimes.version });
      expect(locked!.integrity, pin.package).toBe(pin.integrity);
      expect(pin.sha256, pin.package).toMatch(/^[0-9a-f]{64}$/);
    }
  });
});

const sha256 = (bytes: string | Uint8Array): string =>
  createHash("sha256").update(bytes).digest("hex");

/** A tar archive with one file. */
function tarOf(name: string, content: Uint8Array): Uint8Array {
  const header = Buffer.alloc(512);
  header.write(name, 0);
  header.write("0000755\0", 100);
  header.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("        0ustar\x0000", 148);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc((512 - (content.length % 512)) % 512);
  return Buffer.concat([header, content, padding, Buffer.alloc(1024)]);
}

describe("Nodes", () => {
  const node = Buffer.from("a program ".repeat(500));
  const archive = gzipSync(tarOf("node-v1.2.3-linux-x64/bin/node", node));

  async function serve(files: Record<string, string | Uint8Array>): Promise<string> {
    const server = createServer((request, response) => {
      const file = files[request.url!.replace("/v1.2.3/", "")];
      response.writeHead(file === undefined ? 404 : 200).end(file);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  const pinned = (sum: string): PinnedNodes => ({
    version: "1.2.3",
    platforms: {
      "linux-x64": { file: "bin/node", sha256: sum },
      "win32-x64": { file: "bin/node.exe", sha256: sum },
    },
  });
  const sums = `${sha256(archive)}  node-v1.2.3-linux-x64.tar.gz\n${sha256(node)}  win-x64/node.exe\n`;
  const files = { "SHASUMS256.txt": sums, "node-v1.2.3-linux-x64.tar.gz": archive };
  const results = async (pins: PinnedNodes, from: string): Promise<string[]> =>
    (await checkNodes(pins, from)).map(({ result }) => result);

  test("the same, whether listed itself or inside an archive", async () => {
    expect(await results(pinned(sha256(node)), await serve(files))).toEqual(["same", "same"]);
  });

  test("another program, and an archive that is not the listed one, are found", async () => {
    expect(await results(pinned(sha256("x")), await serve(files))).toEqual([
      "different",
      "different",
    ]);
    const other = gzipSync(tarOf("node-v1.2.3-linux-x64/bin/node", Buffer.from("evil")));
    const tampered = { ...files, "node-v1.2.3-linux-x64.tar.gz": other };
    expect(await results(pinned(sha256(node)), await serve(tampered))).toEqual([
      "different",
      "same",
    ]);
  });

  test("what cannot be had is said, and is no failure", async () => {
    const checked = await checkNodes(pinned(sha256(node)), await serve({}));
    expect(checked).toMatchObject([{ result: "unknown" }, { result: "unknown" }]);
    expect(checked[0]!.why).toContain("HTTP status 404");
    const missing = { "SHASUMS256.txt": sums };
    expect(await results(pinned(sha256(node)), await serve(missing))).toEqual(["unknown", "same"]);
  });
});
