// What a program imports as `lantern/server`: the server's protocols over models that the program has opened, as a `fetch` function
// within the process, without a socket; and the same on a port.
//
//     const client = new OpenAI({ fetch: createFetch(model), baseURL: "http://lantern/v1", apiKey: "none" });

import type { GenerateOptions, Model } from "../../src/index.ts";
import { createApp } from "./app.ts";
import type { Connection, Guard } from "./guard.ts";
import { routeFamilies } from "./routes/table.ts";
import { contextOf, startServer } from "./serve.ts";

/** One model, or several by the names that clients use; the first is the default. */
export type Models = Model | Readonly<Record<string, Model>>;

export interface FetchOptions {
  /** What GET /props and /api/version say. Default: "0". */
  version?: string;
  /** Generations that run at once (default 8), and that may wait (default 64). */
  parallel?: number;
  queue?: number;
  /** Sampling options of requests that set none. */
  sampling?: GenerateOptions;
  /** Refuse fields of requests that are otherwise ignored and named. */
  strictFields?: boolean;
  /** Gets a line about each failure that is a bug (default: nothing). */
  log?: (line: string) => void;
}

export interface ServeOptions extends FetchOptions {
  /** Default 127.0.0.1: this machine only. */
  host?: string;
  /** Default 8080; 0: any free port. */
  port?: number;
  /** API keys, one of which clients must send; none: all clients may generate. */
  apiKeys?: readonly string[];
  /** Origins whose pages may send requests; "*": all, "localhost": those of this machine. */
  corsOrigins?: readonly string[];
}

export interface Server extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  /** No new requests; running ones finish, or end with an error event after 5 seconds. The models stay open. */
  stop(): Promise<void>;
}

/** Whoever has the function may use it: names, origins and keys are the business of sockets. */
const anybody: Guard = {
  check: async () => "process",
  login: async () => undefined,
  corsHeaders: () => ({}),
  preflight: () => new Response(null, { status: 200 }),
};

const here: Connection = { address: "127.0.0.1", isLocal: true };

/**
 * A `fetch` that answers OpenAI's, Anthropic's, Ollama's and llama.cpp's requests with these models, whatever the URL's host is. The
 * models belong to the caller.
 */
export function createFetch(models: Models, options: FetchOptions = {}): typeof fetch {
  const context = contextOf(
    startOf(models, options),
    "localhost",
    false,
    new AbortController().signal,
  );
  const answer = createApp(context, { families: routeFamilies, guard: anybody });
  return async (input, init) => await answer(new Request(input, init), here);
}

/** The same on a port: `lantern serve` without its page, its catalog and its conversations. */
export async function serve(models: Models, options: ServeOptions = {}): Promise<Server> {
  const { url, port, stop } = await startServer({
    ...options,
    ...startOf(models, options),
    token: false,
  });
  return { url, port, stop, [Symbol.asyncDispose]: stop };
}

function startOf(models: Models, { version = "0", ...options }: FetchOptions) {
  const isOne = (each: Models): each is Model => typeof each.generate === "function";
  return { ...options, version, models: isOne(models) ? { [models.info.name]: models } : models };
}
