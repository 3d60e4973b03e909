// Files and batches of a server: the store, the runner that answers their lines with the server's own routes, and their owners.
// OpenAI's and Anthropic's routes are two faces of it.
//
// Lines are background work of the engine: they take the room that clients leave in batches and in the KV cache.

import { SourceError } from "../../src/index.ts";
import type { Database } from "../../src/platform/database.ts";
import { StorageError, type StorageProblem } from "../../src/platform/database.ts";
import { BatchError, type BatchLine } from "../batch/batch.ts";
import type { FileFolder } from "../batch/file-folder.ts";
import { type Answerer, BatchRunner } from "../batch/runner.ts";
import type { ShareBatches, SharedState } from "../batch/shared.ts";
import { BatchStore } from "../batch/store.ts";
import type { ServerContext } from "./context.ts";
import { ApiError, invalidRequest, notFound } from "./errors.ts";
import type { OpenDatabase } from "./held.ts";
import { backgroundContext, callRoute } from "./internal-call.ts";
import { withoutFolders } from "./models/library.ts";
import type { Call, RouteFamily } from "./route.ts";

/** The storage of files and batches. */
export interface BatchPlace {
  readonly open: OpenDatabase;
  readonly folder: FileFolder;
  /** The answerer of lines, given the server's own routes (default: these). */
  answerer?(own: Answerer): Answerer;
  /** Lines that the server's own routes answer at a time (default 32). */
  readonly linesAtOnce?: number;
  /** Shares them with other servers. */
  readonly share?: ShareBatches;
}

/** Routes that lines may be for, by API. */
export const lineEndpoints = {
  openai: ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"],
  anthropic: ["/v1/messages"],
} as const;

/** Lines that are given to the engine at a time; it runs as many of them as its memory holds. */
const linesAtOnce = 32;

/** The parts that the routes use. */
export type BatchFace = Pick<BatchService, "store" | "runner" | "owner">;

export class BatchService {
  readonly store: BatchStore;
  readonly runner: BatchRunner;
  readonly #server: ServerContext;
  readonly #shared: SharedState | undefined;
  #isClosed = false;

  constructor(
    server: ServerContext,
    database: Database,
    place: BatchPlace,
    families: () => readonly RouteFamily[],
  ) {
    this.#server = server;
    this.store = new BatchStore(database, place.folder, { now: () => server.time() });
    for (const finding of this.store.findings) server.log(`files and batches: ${finding}`);
    const atOnce = place.linesAtOnce ?? linesAtOnce;
    const background = backgroundContext(server, atOnce);
    const own: Answerer = {
      parallel: () => atOnce,
      answer: (path, body, signal) => callRoute(background, families(), { path, body, signal }),
    };
    this.runner = new BatchRunner(this.store, place.answerer?.(own) ?? own, {
      now: () => server.time(),
      log: (line) => server.log(line),
    });
    this.#shared = this.store.writable ? place.share?.(this.store, this.runner) : undefined;
  }

  start(): void {
    if (!this.store.writable) return;
    const known = this.#shared?.start();
    if (!known) this.runner.start();
    void known?.then(() => {
      if (!this.#isClosed) this.runner.start();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.runner.stop();
    await this.#shared?.close();
    this.store.close();
  }

  /** Answers a request about files or batches: reads the records of other servers before it, and writes its changes for them after it. */
  async answer(handle: () => Response | Promise<Response>): Promise<Response> {
    if (!this.#shared) return await handle();
    const shared = this.#shared;
    await orApiError(() => shared.upToDate());
    const response = await handle();
    await orApiError(() => shared.flush());
    return response;
  }

  /** The owner whose files a request may see: its API key, or one owner for all if there are no keys. */
  async owner({ client }: Call): Promise<string> {
    if (this.#server.settings.access.apiKeys.length === 0) return "";
    const bytes = new TextEncoder().encode(client);
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return [...hash.subarray(0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }
}

/** The store's errors as the routes' own. */
export async function orApiError<T>(work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof StorageError) throw storageFailed(error.problem, error);
    if (error instanceof SourceError) throw storageFailed("failed", error); // a file's bytes
    if (!(error instanceof BatchError)) throw error;
    if (error.kind === "missing") throw notFound(error.message, error.param, "not_found");
    if (error.kind === "invalid") throw invalidRequest(error.message, error.param);
    const type = "invalid_request_error";
    const [status, code] = error.kind === "full" ? [507, "storage_full"] : [409, "conflict"];
    throw new ApiError({ status, type, code, param: error.param, message: error.message });
  }
}

function storageFailed(problem: StorageProblem, error: SourceError): ApiError {
  const isFull = problem === "full" || error.message.includes("disk is full");
  return new ApiError(
    {
      status: isFull ? 507 : 503,
      type: "server_error",
      code: `storage_${isFull ? "full" : problem}`,
      param: null,
      message: `files and batches cannot be stored: ${withoutFolders(error.message)}`,
    },
    { cause: error },
  );
}

/** One line of an input file. */
export function inputText(
  { customId, body }: Pick<BatchLine, "customId" | "body">,
  url: string,
): string {
  return `${JSON.stringify({ custom_id: customId, method: "POST", url, body })}\n`;
}
