// Checks that the Nodes pinned in bin/runtimes.json are those that nodejs.org publishes. The pins are of binaries in
// npm packages that others repack; this compares them with the archives of the Node.js project:
//
//   node scripts/check-node-binaries.ts [PLATFORM...] [--from https://nodejs.org/dist]
//
// SHASUMS256.txt lists node.exe itself. For the others it lists the archives: they are downloaded (some 50 MB each),
// checked against it, and bin/node in them against the pin. Exits with 1 if a binary differs; if the site cannot be
// reached, it reports that nothing was checked, and exits with 0. The signature of SHASUMS256.txt is not checked: it
// is trusted because of TLS.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { createGunzip } from "node:zlib";
import { tarFile } from "../src/catalog/tar.ts";

export interface PinnedNode {
  file: string;
  sha256: string;
}

export interface PinnedNodes {
  version: string;
  platforms: Readonly<Record<string, PinnedNode>>;
}

export interface Checked {
  platform: string;
  result: "same" | "different" | "unknown";
  why: string;
}

const patienceMs = 300_000;

export async function checkNodes(
  pinned: PinnedNodes,
  from: string,
  platforms: readonly string[] = Object.keys(pinned.platforms),
): Promise<Checked[]> {
  const folder = `${from}/v${pinned.version}`;
  let sums: ReadonlyMap<string, string>;
  try {
    sums = readSums(await (await fetched(`${folder}/SHASUMS256.txt`)).text());
  } catch (error) {
    const why = `the published SHA-256 sums cannot be had: ${reasonOf(error)}`;
    return platforms.map((platform) => ({ platform, result: "unknown", why }));
  }
  const found: Checked[] = [];
  for (const platform of platforms) {
    const pin = Object.hasOwn(pinned.platforms, platform) ? pinned.platforms[platform] : undefined;
    if (!pin) found.push({ platform, result: "unknown", why: "nothing is pinned for it" });
    else found.push(await checkOne(platform, pin, pinned.version, folder, sums));
  }
  return found;
}

async function checkOne(
  platform: string,
  pin: PinnedNode,
  version: string,
  folder: string,
  sums: ReadonlyMap<string, string>,
): Promise<Checked> {
  const unknown = (why: string): Checked => ({ platform, result: "unknown", why });
  const compared = (sha256: string, what: string): Checked =>
    sha256 === pin.sha256
      ? { platform, result: "same", why: what }
      : { platform, result: "different", why: `${what}: ${sha256}, pinned is ${pin.sha256}` };
  // For Windows the program itself is listed.
  const bare = `${platform.replace("win32", "win")}/node.exe`;
  const own = sums.get(bare);
  if (pin.file.endsWith(".exe")) {
    return own ? compared(own, `SHASUMS256.txt lists ${bare}`) : unknown(`${bare} is not listed`);
  }
  const name = `node-v${version}-${platform}`;
  const wanted = sums.get(`${name}.tar.gz`);
  if (!wanted) return unknown(`${name}.tar.gz is not listed`);
  try {
    const whole = createHash("sha256");
    const binary = createHash("sha256");
    const { body } = await fetched(`${folder}/${name}.tar.gz`);
    const unpacked = createGunzip();
    const reading = (async () => {
      for await (const piece of tarFile(unpacked, `${name}/bin/node`, `${name}.tar.gz`)) {
        binary.update(piece);
      }
    })();
    reading.catch(() => {}); // reported below
    for await (const piece of body!) {
      whole.update(piece);
      if (!unpacked.destroyed) unpacked.write(piece);
    }
    unpacked.end();
    await reading;
    const archive = whole.digest("hex");
    if (archive !== wanted) {
      return {
        platform,
        result: "different",
        why: `the archive is ${archive}, listed is ${wanted}`,
      };
    }
    return compared(binary.digest("hex"), `bin/node in ${name}.tar.gz, whose SHA-256 is listed`);
  } catch (error) {
    return unknown(`${name}.tar.gz cannot be had: ${reasonOf(error)}`);
  }
}

/** "HASH  NAME" per line. */
function readSums(text: string): Map<string, string> {
  const lines = [...text.matchAll(/^([0-9a-f]{64}) {2}(\S+)$/gm)];
  if (lines.length === 0) throw new Error("it is no list of sums");
  return new Map(lines.map(([, sum, name]) => [name!, sum!]));
}

async function fetched(url: string): Promise<Response> {
  const response = await fetch(url, { signal: AbortSignal.timeout(patienceMs) });
  if (!response.ok) throw new Error(`HTTP status ${response.status}`);
  return response;
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error ? `${message} (${cause.message})` : message;
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { from: { type: "string", default: "https://nodejs.org/dist" } },
  });
  const pinned = JSON.parse(
    readFileSync(new URL("../bin/runtimes.json", import.meta.url), "utf8"),
  ) as PinnedNodes;
  const checked = await checkNodes(
    pinned,
    values.from,
    positionals.length > 0 ? positionals : undefined,
  );
  for (const { platform, result, why } of checked) console.log(`${platform}: ${result}: ${why}`);
  process.exitCode = checked.some(({ result }) => result === "different") ? 1 : 0;
}
