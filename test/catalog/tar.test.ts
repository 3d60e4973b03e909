// The tar reader against archives that the system's tar made, and against damaged ones.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { tarFile } from "../../src/catalog/tar.ts";
import { noise } from "./download-server.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-tar-"));
afterAll(() => rmSync(folder, { recursive: true }));

const longName = `package/${"a-rather-long-folder-name/".repeat(8)}model.part`;
const contents = new Map<string, Uint8Array>([
  ["package/package.json", new TextEncoder().encode("{}")],
  ["package/empty", new Uint8Array(0)],
  ["package/model.part", noise(70_001)],
  [longName, noise(1024, 5)],
]);

function systemTar(format: string): Uint8Array | undefined {
  for (const [name, bytes] of contents) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), bytes);
  }
  const archive = join(folder, `${format}.tar`);
  try {
    const args = ["-c", `--format=${format}`, "-f", archive, "-C", folder, ...contents.keys()];
    execFileSync("tar", args, { stdio: "pipe" });
    return readFileSync(archive);
  } catch {
    return undefined;
  }
}

async function* inPieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function extract(
  archive: Uint8Array,
  wanted: string,
  pieceSize: number,
): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  for await (const piece of tarFile(inPieces(archive, pieceSize), wanted, "x.tgz")) {
    pieces.push(piece.slice());
  }
  return Buffer.concat(pieces);
}

// ustar splits a long name in two, GNU and pax put it in a record of its own.
for (const format of ["ustar", "gnu", "pax"]) {
  const archive = systemTar(format);
  const title = archive ? format : `${format} [skipped: this system's tar cannot write it]`;
  describe.skipIf(!archive)(title, () => {
    for (const [name, bytes] of contents) {
      for (const pieceSize of [7, 512, 65_536]) {
        test(`${name.slice(0, 40)} in pieces of ${pieceSize}`, async () => {
          expect(Buffer.compare(await extract(archive!, name, pieceSize), bytes)).toBe(0);
        });
      }
    }
    test("a file that is not there", async () => {
      await expect(extract(archive!, "package/no", 4096)).rejects.toThrow(
        'x.tgz has no file "package/no"',
      );
    });
    test("an archive that ends too early", async () => {
      const cut = archive!.subarray(0, 20_000);
      await expect(extract(cut, "package/model.part", 4096)).rejects.toThrow("ends in the middle");
    });
    test("a damaged header", async () => {
      const damaged = Uint8Array.from(archive!);
      damaged[3] = damaged[3]! ^ 1;
      await expect(extract(damaged, "package/model.part", 4096)).rejects.toThrow("checksum");
    });
  });
}

test("what follows the wanted file is not read, and the source is told so", async () => {
  const archive = readFileSync(join(folder, "ustar.tar"));
  let ended = false;
  async function* source(): AsyncGenerator<Uint8Array> {
    try {
      yield* inPieces(archive, 512);
    } finally {
      ended = true; // a download would be cancelled here
    }
  }
  for await (const _ of tarFile(source(), "package/package.json", "x.tgz")) {
    // read to its end
  }
  expect(ended).toBe(true);
});
