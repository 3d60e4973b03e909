// Model files on the Hugging Face hub (or a mirror: HF_ENDPOINT), with HF_TOKEN if it is set. hub-api.ts resolves
// name, revision, size and hash; http-body.ts reads the bytes and resumes cut connections.

import { SourceError } from "../../base/errors.ts";
import type { CatalogEntry, HubSource } from "../catalog.ts";
import { fileDownloadInfo, HUB_URL, pathsInfo } from "../hub-api.ts";
import { explained, hubAccess, hubArguments, refusalAdvice } from "../hub-client.ts";
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
  const access = hubAccess(platform, signal);
  const { endpoint, token } = access;
  const { repo, revision, file } = source;
  const name = `hub file ${repo}/${file}`;
  const place = { repo, revision, ...hubArguments(access) };
  const question = { what: `${repo} (${revision})`, access, signal };
  const [listed] = await explained(pathsInfo({ ...place, paths: [file] }), question);
  const info = listed && (await explained(fileDownloadInfo({ ...place, path: file }), question));
  if (!listed || !info) {
    throw new SourceError(
      `hub: ${repo} (${revision}) has no file "${file}". Check the name on the model's page`,
    );
  }
  const sha256 = entry.sha256
    ? { value: entry.sha256, statedBy: "the catalog" }
    : listed.lfs && { value: listed.lfs.oid, statedBy: "the hub" };
  // The token is for the hub only, not for a storage host that it redirects to.
  const authorized = token && new URL(info.url).origin === new URL(endpoint ?? HUB_URL).origin;
  return {
    name,
    identity: `${repo}/${file} ${listed.lfs?.oid ?? info.etag} ${info.size}`,
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
