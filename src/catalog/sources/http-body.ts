// The body of an HTTP resource as a stream that survives cut and stalled connections: it asks for the missing part
// with a Range request as long as the server still has the same file (ETag and size). Knows nothing about models.

import { Backoff, type Waits } from "../../base/backoff.ts";
import { AbortedError, messageOf, SourceError } from "../../base/errors.ts";
import { stallMs, stallVariable, unlessStalled } from "../../base/stall.ts";
import type { DownloadPlatform } from "../../platform/download.ts";

export interface BodyRequest {
  url: string;
  /** Name for messages. */
  name: string;
  headers?: Readonly<Record<string, string>>;
  /** First byte to read. */
  offset: number;
  /** Total size of the resource, if known. */
  bytes?: number;
  /** Advice about a 401, 403 or 404: the end of that error's message. */
  advice?: string;
  signal: AbortSignal | undefined;
}

/** The file on the server is no longer the one that the download started with. */
export class RemoteChangedError extends SourceError {
  override name: string = "RemoteChangedError";
}

const attemptsWithoutProgress = 5;
const waits: Waits = { firstMs: 250, mostMs: 10_000, tries: attemptsWithoutProgress };

/** The facts about the resource that the responses stated so far. */
interface BodyState {
  position: number;
  etag: string | undefined;
  total: number | undefined;
}

export async function* httpBody(
  platform: DownloadPlatform,
  request: BodyRequest,
): AsyncGenerator<Uint8Array, void, undefined> {
  const state: BodyState = { position: request.offset, etag: undefined, total: request.bytes };
  const backoff = new Backoff(waits);
  for (;;) {
    const before = state.position;
    let waitMs: number | undefined;
    try {
      for await (const chunk of oneResponse(platform, request, state)) {
        state.position += chunk.length;
        yield chunk;
      }
      if (state.total === undefined || state.position >= state.total) return;
      throw new Error(`the connection ended at byte ${state.position} of ${state.total}`);
    } catch (error) {
      if (request.signal?.aborted) throw new AbortedError(`the download of ${request.name}`);
      if (error instanceof SourceError) throw error;
      if (state.position > before) backoff.succeeded();
      waitMs = backoff.next();
      if (waitMs === undefined) throw unreachable(request, error);
    }
    await platform.sleep(waitMs, request.signal);
  }
}

async function* oneResponse(
  platform: DownloadPlatform,
  request: BodyRequest,
  state: BodyState,
): AsyncGenerator<Uint8Array, void, undefined> {
  const headers: Record<string, string> = { ...request.headers, "Accept-Encoding": "identity" };
  if (state.position > 0) headers.Range = `bytes=${state.position}-`;
  // With If-Range, a server whose file has changed sends 200 and the whole new file instead of a part that does not
  // fit.
  if (state.position > 0 && state.etag && !state.etag.startsWith("W/")) {
    headers["If-Range"] = state.etag;
  }
  const waitMs = stallMs(platform.env(stallVariable));
  const ended = new AbortController();
  const signal = AbortSignal.any([ended.signal, ...(request.signal ? [request.signal] : [])]);
  const inTime = <T>(awaited: Promise<T>): Promise<T> =>
    unlessStalled(awaited, waitMs, () => ended.abort());
  const response = await inTime(
    platform.fetch(request.url, { headers, redirect: "follow", signal }),
  );
  if (!response.ok) {
    await response.body?.cancel();
    throw refusal(response, request);
  }
  checkSameFile(response, request, state);
  if (!response.body) throw new Error("an empty answer");
  // 200 to a Range request: the server sends everything again, so skip the part we have.
  let skip = response.status === 206 ? 0 : state.position;
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value: chunk } = await inTime(reader.read());
      if (done) return;
      const skipped = Math.min(skip, chunk.length);
      skip -= skipped;
      if (skipped < chunk.length) yield chunk.subarray(skipped);
    }
  } finally {
    ended.abort(); // the rest is not needed
  }
}

function checkSameFile(response: Response, request: BodyRequest, state: BodyState): void {
  const etag = response.headers.get("etag") ?? undefined;
  const total = statedTotal(response);
  const otherTag = etag !== undefined && state.etag !== undefined && etag !== state.etag;
  const otherSize = total !== undefined && state.total !== undefined && total !== state.total;
  if (otherTag || otherSize) {
    const seen = otherSize ? `${total} bytes` : `version ${etag}`;
    const known = otherSize ? `${state.total} bytes` : `version ${state.etag}`;
    throw new RemoteChangedError(
      `download: ${request.name} changed on the server: got ${seen}, expected ${known}. Run the command again`,
    );
  }
  if (response.status === 206 && statedStart(response) !== state.position) {
    throw new Error(`a piece from byte ${statedStart(response)}, expected ${state.position}`);
  }
  state.etag ??= etag;
  state.total ??= total;
}

/** Total size, from "bytes 100-199/200" or Content-Length. */
function statedTotal(response: Response): number | undefined {
  const field =
    response.status === 206
      ? response.headers.get("content-range")?.split("/")[1]
      : response.headers.get("content-length");
  return field && /^\d+$/.test(field) ? Number(field) : undefined;
}

function statedStart(response: Response): number | undefined {
  const match = /^bytes (\d+)-/.exec(response.headers.get("content-range") ?? "");
  return match ? Number(match[1]) : undefined;
}

/** A permanent refusal is a SourceError; a temporary one (busy, broken gateway) is retried. */
function refusal(response: Response, request: BodyRequest): Error {
  const { status } = response;
  if (status >= 500 || status === 429 || status === 408) return new Error(`HTTP status ${status}`);
  const advice = request.advice ?? "Check the name and the address";
  return new SourceError(
    `download: ${request.name}: the server at ${new URL(request.url).host} answered with HTTP status ${status}, expected 200. ${advice}`,
  );
}

function unreachable(request: BodyRequest, error: unknown): SourceError {
  const { host } = new URL(request.url);
  return new SourceError(
    `download: ${request.name}: gave up after ${attemptsWithoutProgress} attempts at ${host}: ${reasonOf(error)}. Check the network and run the command again; the download continues where it stopped`,
    { cause: error },
  );
}

/** fetch says "fetch failed" and has the reason in `cause`. */
function reasonOf(error: unknown): string {
  const { cause } = Object(error) as { cause?: unknown };
  if (!(cause instanceof Error)) return messageOf(error);
  return cause.message || (cause as { code?: string }).code || messageOf(error);
}
