// Model files on the Hugging Face hub (or a mirror: HF_ENDPOINT), with HF_TOKEN where one is set. The hub's own package
// resolves name, revision, size and hash; the bytes come through http-body.ts, so that any cut is continued.

import { AbortedError, SourceError } from "../../base/errors.ts";
import type { CatalogEntry, HubSource } from "../catalog.ts";
import { httpBody } from "./http-body.ts";
import type { RemoteFile, SourceContext, SourceKind } from "./source.ts";

export const hubSource: SourceKind<HubSource> = {
  open: openHubFile,
  installed: () => undefined,
  describe: ({ repo, file }) => `hub ${repo}/${file}`,
};

async function openHubFile(
  source: HubSource,
  entry: CatalogEntry,
  context: SourceContext,
): Promise<RemoteFile> {
  const { platform, signal } = context;
  const endpoint = platform.env("HF_ENDPOINT")?.replace(/\/+$/, "");
  const token = platform.env("HF_TOKEN");
  const name = `hub file ${source.repo}/${source.file}`;
  // Only who downloads from the hub pays for loading its package.
  const { HUB_URL, fileDownloadInfo, pathsInfo } = await import("@huggingface/hub");
  const place = {
    repo: source.repo,
    revision: source.revision,
    ...(endpoint && { hubUrl: endpoint }),
    ...(token && { accessToken: token }),
    fetch: ((input, init) =>
      platform.fetch(input, { ...init, ...(signal && { signal }) })) as typeof fetch,
  };
  const asked = explained(name, source, token !== undefined, signal);
  const [listed] = await asked(pathsInfo({ ...place, paths: [source.file] }));
  const info = listed && (await asked(fileDownloadInfo({ ...place, path: source.file })));
  if (!listed || !info) {
    throw new SourceError(
      `hub: ${source.repo} (${source.revision}) has no file "${source.file}". Check the name on the model's page`,
    );
  }
  const sha256 = entry.sha256
    ? { value: entry.sha256, statedBy: "the catalog" }
    : listed.lfs && { value: listed.lfs.oid, statedBy: "the hub" };
  // The token is for the hub alone, not for a storage host that it may point to.
  const authorized = token && new URL(info.url).origin === new URL(endpoint ?? HUB_URL).origin;
  return {
    name,
    identity: `${source.repo}/${source.file} ${listed.lfs?.oid ?? info.etag} ${info.size}`,
    bytes: info.size,
    sha256,
    resumeFrom: (have) => (have <= info.size ? have : 0),
    read: (offset, readSignal) =>
      httpBody(platform, {
        url: info.url,
        name,
        headers: authorized ? { Authorization: `Bearer ${token}` } : {},
        offset,
        bytes: info.size,
        advice: refusalAdvice(token !== undefined),
        signal: readSignal,
      }),
  };
}

function refusalAdvice(hasToken: boolean): string {
  return hasToken
    ? "The token in HF_TOKEN may not have access: accept the model's licence on its page"
    : "If the model is gated or private, set HF_TOKEN to a token that may read it";
}

/** Turns the hub package's errors into ours. */
function explained(
  name: string,
  source: HubSource,
  hasToken: boolean,
  signal: AbortSignal | undefined,
): <T>(answer: Promise<T>) => Promise<T> {
  return async (answer) => {
    try {
      return await answer;
    } catch (error) {
      if (signal?.aborted) throw new AbortedError(`the download of ${name}`);
      const status = (error as { statusCode?: number }).statusCode;
      if (status === 401 || status === 403 || status === 404) {
        throw new SourceError(
          `hub: ${source.repo} (${source.revision}) was refused with HTTP status ${status}: there is no such repository, or it is not public. ${refusalAdvice(hasToken)}`,
          { cause: error },
        );
      }
      const cause = (error as { cause?: unknown }).cause;
      const reason = cause instanceof Error && cause.message ? cause.message : String(error);
      throw new SourceError(
        `hub: ${name}: the hub could not be asked: ${reason}. Check the network, or set HF_ENDPOINT to a mirror`,
        { cause: error },
      );
    }
  };
}
