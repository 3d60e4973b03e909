// Files over HTTP, read with range requests: a ByteSource over fetch, and the ModelSource of a URL.
//
// There is no buffering or read-ahead: one read() is one request, and the format readers ask for large pieces. Every
// response is checked: status, Content-Range, total size, ETag, and the number of bytes received. A cut or stalled
// connection is given up, and the missing part is requested again.

import { Backoff } from "../../base/backoff.ts";
import { AbortedError, messageOf, SourceError } from "../../base/errors.ts";
import { StalledError, unlessStalled, usualStallSeconds } from "../../base/stall.ts";
import type { ByteSource, ModelSource } from "../platform.ts";
import { checkOpen, checkPlainName, checkRange } from "./checks.ts";

export interface HttpOptions {
  /** Sent with every request, such as an Authorization for a private model. */
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
  /** The time for which a connection may be silent before it is closed. */
  stallMs?: number;
  /** Advice about a server that stalls: the end of that error's message. */
  advice?: string;
  /** Wait before the first retry; doubled for each further one. */
  retryMs?: number;
}

/** Failures in a row without any byte after which a read is given up for good. */
const attemptsWithoutProgress = 4;
const usualRetryMs = 250;

/** A failed read that may be the network's fault. */
class ConnectionLost extends SourceError {
  override name: string = "ConnectionLost";
}

/** The facts that the first response stated about a file; every later response must agree. */
interface RemoteFile {
  url: string;
  size: number;
  etag: string | null;
}

/** The part of a read that has arrived, over all its attempts. */
interface Progress {
  done: number;
}

/** A response, and a way to wait for more of it. */
interface Answer {
  url: string;
  response: Response;
  /** Closes the connection if no data comes. */
  inTime<T>(awaited: Promise<T>): Promise<T>;
}

interface ContentRange {
  first: number;
  last: number;
  total: number;
}

class HttpRangeSource implements ByteSource {
  readonly name: string;
  readonly size: number;
  readonly #file: RemoteFile;
  readonly #options: HttpOptions;
  #closed: boolean = false;

  constructor(name: string, file: RemoteFile, options: HttpOptions) {
    this.name = name;
    this.size = file.size;
    this.#file = file;
    this.#options = options;
  }

  async read(offset: number, length: number): Promise<Uint8Array<ArrayBuffer>> {
    checkRange(this.name, this.size, offset, length);
    const target = new Uint8Array(length);
    await this.readInto(offset, target);
    return target;
  }

  async readInto(offset: number, target: Uint8Array): Promise<void> {
    checkOpen(this.name, this.#closed);
    checkRange(this.name, this.size, offset, target.byteLength);
    if (target.byteLength === 0) return; // a range header cannot ask for zero bytes
    const progress = { done: 0 };
    const { retryMs = usualRetryMs } = this.#options;
    const tries = attemptsWithoutProgress;
    const backoff = new Backoff({ firstMs: retryMs, mostMs: 10_000, tries });
    for (;;) {
      const before = progress.done;
      try {
        return await this.#readRest(offset, target, progress);
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error;
        if (progress.done > before) backoff.succeeded();
        if (!(await backoff.failed())) throw error;
      }
    }
  }

  /** Continues where an earlier attempt ended. */
  async #readRest(offset: number, target: Uint8Array, progress: Progress): Promise<void> {
    const { url } = this.#file;
    const first = offset + progress.done;
    const last = offset + target.byteLength - 1;
    const { response, inTime, end } = await requestRange(url, first, last, this.#options);
    try {
      checkSameFile(this.#file, response, first, last);
      await copyBody({ url, response, inTime }, offset, target, progress, this.#options);
    } catch (error) {
      end();
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
  }
}

/**
 * The model at a URL, and the files beside it. A URL that ends in "/" is a folder; its query (a signature, a download
 * flag) is sent with every request.
 */
export function httpModelSource(url: string | URL, options: HttpOptions = {}): ModelSource {
  const base = parseUrl(url);
  const name = base.href;
  const main = mainOf(base, name);
  const probes = new Map<string, Promise<RemoteFile | undefined>>();

  // has() followed by open() costs only one probe.
  const lookUp = (file: string): Promise<RemoteFile | undefined> => {
    const target = new URL(encodeURIComponent(checkPlainName(file, name)), base);
    target.search = base.search;
    let pending = probes.get(target.href);
    if (!pending) {
      pending = probe(target.href, options);
      probes.set(target.href, pending);
      pending.catch(() => probes.delete(target.href)); // a failed probe may be retried
    }
    return pending;
  };

  return {
    name,
    main,
    has: async (file) => (await lookUp(file)) !== undefined,
    open: async (file) => {
      const found = await lookUp(file);
      if (found) return new HttpRangeSource(file, found, options);
      throw new SourceError(`${name}: there is no ${JSON.stringify(file)} there (HTTP 404)`);
    },
    list: async () => undefined,
  };
}

function parseUrl(url: string | URL): URL {
  try {
    const parsed = new URL(url);
    if (parsed.protocol === "http:" || parsed.protocol === "https:") return parsed;
  } catch {
    // falls through to the same error
  }
  throw new SourceError(`${String(url)}: is not an address; expected http://... or https://...`);
}

function mainOf(base: URL, name: string): string | undefined {
  const segment = base.pathname.slice(base.pathname.lastIndexOf("/") + 1);
  if (segment === "") return undefined;
  try {
    return checkPlainName(decodeURIComponent(segment), name);
  } catch (error) {
    if (error instanceof SourceError) throw error;
    throw new SourceError(`${name}: the file name in the address is not valid percent-encoding`);
  }
}

/** Requests one byte: tells whether the file exists, its size, and whether ranges work. */
async function probe(url: string, options: HttpOptions): Promise<RemoteFile | undefined> {
  const { response, end } = await requestRange(url, 0, 0, options);
  await response.body?.cancel().catch(() => undefined); // the byte itself is not needed
  end();
  const etag = response.headers.get("etag");
  if (response.status === 404 || response.status === 410) return undefined;
  // An empty file has no byte 0: a correct server responds 416 with its size.
  if (response.status === 416 && response.headers.get("content-range") === "bytes */0") {
    return { url, size: 0, etag };
  }
  return { url, size: rangeOf(url, response).total, etag };
}

async function requestRange(
  url: string,
  first: number,
  last: number,
  options: HttpOptions,
): Promise<Answer & { end(): void }> {
  const ended = new AbortController();
  const signal = AbortSignal.any([ended.signal, ...(options.signal ? [options.signal] : [])]);
  const end = (): void => ended.abort();
  const waitMs = options.stallMs ?? usualStallSeconds * 1000;
  const inTime = <T>(awaited: Promise<T>): Promise<T> => unlessStalled(awaited, waitMs, end);
  try {
    const headers = { ...options.headers, Range: `bytes=${first}-${last}` };
    const response = await inTime(fetch(url, { headers, signal }));
    return { url, response, inTime, end };
  } catch (error) {
    throw failure(url, `bytes ${first}-${last}`, error, options);
  }
}

/** The Content-Range of a 206; anything else is an error that reports the server's response. */
function rangeOf(url: string, response: Response): ContentRange {
  if (response.status === 200) {
    throw new SourceError(
      `${url}: the server ignored the Range header (it answered 200 with the whole file, expected 206); reading a model over HTTP needs range requests. Download the file and open it locally`,
    );
  }
  if (response.status !== 206) {
    throw new SourceError(
      `${url}: HTTP ${response.status} ${response.statusText}, expected 206 Partial Content`,
    );
  }
  const header = response.headers.get("content-range");
  const match = /^bytes (\d{1,16})-(\d{1,16})\/(\d{1,16})$/.exec(header ?? "");
  if (!match) {
    throw new SourceError(
      `${url}: Content-Range is ${JSON.stringify(header)}, expected "bytes first-last/total" (a server of another origin must also list it in Access-Control-Expose-Headers)`,
    );
  }
  return { first: Number(match[1]), last: Number(match[2]), total: Number(match[3]) };
}

function checkSameFile(file: RemoteFile, response: Response, first: number, last: number): void {
  const range = rangeOf(file.url, response);
  if (range.first !== first || range.last !== last) {
    throw new SourceError(
      `${file.url}: asked for bytes ${first}-${last}, the server sent ${range.first}-${range.last}`,
    );
  }
  const etag = response.headers.get("etag");
  if (range.total !== file.size || (etag && file.etag && etag !== file.etag)) {
    throw new SourceError(
      `${file.url}: the file changed while it was read (it had ${file.size} bytes, now ${range.total}). Open it again`,
    );
  }
}

/** Copies the body as it arrives; more or fewer bytes than the target holds are an error. */
async function copyBody(
  { url, response, inTime }: Answer,
  offset: number,
  target: Uint8Array,
  progress: Progress,
  options: HttpOptions,
): Promise<void> {
  const all = target.byteLength;
  const reader = response.body?.getReader();
  try {
    while (reader) {
      const part = await inTime(reader.read());
      if (part.done) break;
      if (progress.done + part.value.byteLength > all) {
        throw new SourceError(
          `${url}: the server sent more than the ${all} bytes asked for at ${offset}`,
        );
      }
      target.set(part.value, progress.done);
      progress.done += part.value.byteLength;
    }
  } catch (error) {
    if (error instanceof SourceError) throw error;
    const what = `${all} bytes at ${offset} (${progress.done} arrived)`;
    throw failure(url, what, error, options);
  }
  if (progress.done === all) return;
  throw new ConnectionLost(
    `${url}: the connection ended after ${progress.done} of ${all} bytes at ${offset}`,
  );
}

function failure(url: string, what: string, error: unknown, options: HttpOptions): Error {
  if (options.signal?.aborted) return new AbortedError(`reading ${url}`, { cause: error });
  const cause = error instanceof Error && error.cause ? `: ${messageOf(error.cause)}` : "";
  const advice = error instanceof StalledError ? `. ${options.advice ?? "Check the network"}` : "";
  return new ConnectionLost(
    `${url}: reading ${what} failed: ${messageOf(error)}${cause}${advice}`,
    {
      cause: error,
    },
  );
}
