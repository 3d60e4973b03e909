// Queries to the Hugging Face hub (or a mirror: HF_ENDPOINT), with HF_TOKEN if it is set: the files of a repository,
// and a search for repositories. sources/hub.ts downloads files.

import { AbortedError, messageOf, SourceError } from "../base/errors.ts";
import { stallMs, stallVariable } from "../base/stall.ts";
import { withoutEnd } from "../base/without-end.ts";
import type { DownloadPlatform } from "../platform/download.ts";
import { listFiles, listModels } from "./hub-api.ts";
import { type HubName, isSafePath } from "./hub-name.ts";

export interface HubFile {
  /** Inside the repository. */
  path: string;
  bytes: number;
  /** As stated by the hub; undefined if it states none. */
  sha256: string | undefined;
}

export interface HubFinding {
  /** "owner/name" */
  repo: string;
  downloads: number;
  likes: number;
  /** Whether its licence must first be accepted on its page. */
  gated: boolean;
  /** ISO date. */
  updated: string;
}

/** The hub cannot be reached at all. */
class HubUnreachableError extends SourceError {
  override name: string = "HubUnreachableError";
}

/** The hub's address, the token, and the fetch function to use. */
export interface HubAccess {
  endpoint: string | undefined;
  token: string | undefined;
  request: DownloadPlatform["fetch"];
}

export function hubAccess(platform: DownloadPlatform, signal: AbortSignal | undefined): HubAccess {
  const endpoint = platform.env("HF_ENDPOINT");
  return {
    endpoint: endpoint === undefined ? undefined : withoutEnd(endpoint, "/"),
    token: platform.env("HF_TOKEN"),
    request: (input, init) => {
      // Responses are short, so the timeout is for the whole response.
      const late = AbortSignal.timeout(stallMs(platform.env(stallVariable)));
      const signals = signal ? [late, signal] : [late];
      return platform.fetch(input, { ...init, signal: AbortSignal.any(signals) });
    },
  };
}

/** The same in hub-api.ts's form. */
export function hubArguments({ endpoint, token, request }: HubAccess): {
  hubUrl?: string;
  accessToken?: string;
  fetch: DownloadPlatform["fetch"];
} {
  return {
    ...(endpoint && { hubUrl: endpoint }),
    ...(token && { accessToken: token }),
    fetch: request,
  };
}

/** All GGUF files of a repository. */
export async function hubFiles(
  { repo, revision }: Pick<HubName, "repo" | "revision">,
  platform: DownloadPlatform,
  signal?: AbortSignal,
): Promise<HubFile[]> {
  const access = hubAccess(platform, signal);
  const files: HubFile[] = [];
  const list = async (): Promise<void> => {
    const all = listFiles({ ...hubArguments(access), repo, revision, recursive: true });
    for await (const { path, type, size, lfs } of all) {
      // A mirror may send anything: a path that leads out of the cache folder is skipped.
      if (type !== "file" || !/\.gguf$/i.test(path) || !isSafePath(path)) continue;
      files.push({ path, bytes: lfs?.size ?? size, sha256: lfs?.oid });
    }
  };
  await explained(list(), { what: `${repo} (${revision})`, access, signal });
  return files;
}

/** Repositories with GGUF files that match some words, the most downloaded first. */
export async function searchHub(
  words: string,
  platform: DownloadPlatform,
  { limit = 20, signal }: { limit?: number; signal?: AbortSignal | undefined } = {},
): Promise<HubFinding[]> {
  const access = hubAccess(platform, signal);
  const findings: HubFinding[] = [];
  const list = async (): Promise<void> => {
    const search = { query: words, tags: ["gguf"] };
    const all = listModels({ ...hubArguments(access), search, sort: "downloads", limit });
    for await (const { name, downloads, likes, gated, updatedAt } of all) {
      if (!/^[\w.-]+\/[\w.-]+$/.test(name)) continue; // it is printed on terminals
      const updated = Number.isNaN(updatedAt.getTime()) ? "" : updatedAt.toISOString();
      findings.push({ repo: name, downloads, likes, gated: gated !== false, updated });
    }
  };
  await explained(list(), { what: `the search for "${words}"`, access, signal });
  return findings;
}

export function refusalAdvice(hasToken: boolean): string {
  return hasToken
    ? "The token in HF_TOKEN may not have access: accept the model's licence on its page"
    : "If the model is gated or private, set HF_TOKEN to a token that may read it";
}

interface Question {
  /** The subject of the query: "owner/repo (main)". */
  what: string;
  access: HubAccess;
  signal: AbortSignal | undefined;
}

/** Turns the hub's errors into Lantern's. */
export async function explained<T>(answer: Promise<T>, question: Question): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    const { what, access, signal } = question;
    if (signal?.aborted) throw new AbortedError(`asking the hub about ${what}`);
    const status = (error as { statusCode?: number }).statusCode;
    if (status === 401 || status === 403 || status === 404) {
      throw new SourceError(
        `hub: ${what} was refused with HTTP status ${status}: there is no such repository, or it is not public. ${refusalAdvice(access.token !== undefined)}`,
        { cause: error },
      );
    }
    if (status !== undefined) {
      throw new SourceError(
        `hub: ${what}: the hub answered with HTTP status ${status}. Try again later`,
        { cause: error },
      );
    }
    if ((error as { name?: unknown }).name === "TimeoutError") {
      throw new HubUnreachableError(
        `hub: ${what}: the hub did not answer in time. Try again, or set ${stallVariable} to more seconds`,
        { cause: error },
      );
    }
    const cause = (error as { cause?: unknown }).cause;
    const reason = messageOf(cause ?? error);
    throw new HubUnreachableError(
      `hub: ${what}: the hub could not be reached: ${reason}. Check the network, or set HF_ENDPOINT to a mirror`,
      { cause: error },
    );
  }
}
