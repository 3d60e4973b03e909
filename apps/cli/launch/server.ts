// The server of a launch: one that runs already and has the model, or one of our own, which ends with the client.

import { byName } from "../../../src/base/by-name.ts";
import { messageOf } from "../../../src/base/errors.ts";
import { withoutEnd } from "../../../src/base/without-end.ts";
import { SourceError, UsageError } from "../../../src/index.ts";
import { type OwnServer, startOwnServer } from "../../../src/platform/node-programs.ts";
import type { CliContext } from "../command.ts";
import { type Asked, askServers } from "../commands/ps.ts";
import type { Client, Endpoint } from "./client.ts";
import type { ChosenModel } from "./models.ts";

/** Where `lantern serve` listens by default. */
export const usualUrl: string = "http://127.0.0.1:8080";

/** The key of the servers on this machine: never an argument, which every user could read. */
export function keyOfServers({ terminal }: CliContext): string | undefined {
  return terminal.env("LANTERN_API_KEY") || undefined;
}

/**
 * A running server with this model; with any that knows tools, if none was named. undefined: there is none, and one is started. `url`:
 * only that server will do.
 */
export async function findServer(
  wanted: { model: string | undefined; url: string | undefined; client: Client },
  context: CliContext,
): Promise<Endpoint | undefined> {
  const { url, model } = wanted;
  const asked = url === undefined ? await askServers({}, context) : [{ url: withoutEnd(url, "/") }];
  const reasons: string[] = [];
  for (const server of asked as Pick<Asked, "url">[]) {
    try {
      const found = await modelOf(server.url, wanted, context);
      if (typeof found !== "string") return found;
      reasons.push(`${server.url} ${found}`);
    } catch (error) {
      reasons.push(`${server.url}: ${messageOf(error)}`);
    }
  }
  if (url !== undefined) throw new SourceError(`launch: ${reasons.join("; ")}`);
  if (reasons.length > 0 && model === undefined) {
    context.log.info(`Not used: ${reasons.join("; ")}.\n`);
  }
  return undefined;
}

interface ListedModel {
  readonly id: string;
  readonly aliases?: readonly string[];
}

/** The model of this server to use; a text: why there is none. */
async function modelOf(
  url: string,
  { model, client }: { model: string | undefined; client: Client },
  context: CliContext,
): Promise<Endpoint | string> {
  const key = keyOfServers(context);
  const call = async (path: string, body?: object): Promise<unknown> => {
    const response = await context.downloads.fetch(url + path, {
      method: body ? "POST" : "GET",
      headers: {
        "content-type": "application/json",
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(60_000),
    });
    if (response.ok) return await response.json();
    if (response.status === 401)
      throw new UsageError("it needs an API key. Set LANTERN_API_KEY to it");
    throw new SourceError(`it answered ${path} with HTTP status ${response.status}`);
  };
  const { models: loaded } = (await call("/lantern/v1/status")) as {
    models: { id: string; contextSize: number }[];
  };
  const { data: listed } = (await call("/v1/models")) as { data: ListedModel[] };
  const named = listed.find(
    ({ id, aliases = [] }) => id === model || aliases.includes(model ?? ""),
  );
  if (model !== undefined && !named) return `does not have ${model}`;
  const candidates = named ? [named.id] : loaded.map(({ id }) => id);
  const tooSmall: string[] = [];
  for (const id of candidates) {
    const { capabilities = [] } = (await call("/api/show", { model: id })) as {
      capabilities?: string[];
    };
    const contextSize = loaded.find((one) => one.id === id)?.contextSize;
    if (!named && !capabilities.includes("tools")) continue;
    if (!named && (contextSize ?? 0) < client.context.least) {
      tooSmall.push(`${id} has a context of ${contextSize} tokens`);
      continue;
    }
    return { url, key, model: id, contextSize: contextSize ?? client.context.wanted };
  }
  return tooSmall.length > 0
    ? `is not used: ${tooSmall.join(", ")}, and ${client.title} needs ${client.context.least}`
    : "has no model loaded whose chat template knows tools";
}

/** The flags of our own server. The usual port is used if it is free; else serve takes another. */
export function serveArgs({ name, contextSize }: ChosenModel): string[] {
  const size = contextSize === undefined ? [] : ["--ctx-size", String(contextSize)];
  return [
    "serve",
    "-m",
    name,
    ...size,
    "--no-web",
    "--no-sessions",
    "--json",
    "--log-level",
    "warn",
  ];
}

export interface StartedServer {
  readonly endpoint: Endpoint;
  readonly own: OwnServer;
}

/** Starts it, and waits until the model is open. */
export async function startServer(
  model: ChosenModel,
  log: string,
  context: CliContext,
): Promise<StartedServer> {
  context.terminal.err(`Starting a server with ${model.name} ...\n`);
  const own = startOwnServer(serveArgs(model), log);
  try {
    const ready = JSON.parse(await own.ready) as { url: string; model: string };
    const key = keyOfServers(context);
    const endpoint = await loadedAt(ready, key, context);
    return { own, endpoint };
  } catch (error) {
    await own.stop();
    throw error;
  }
}

async function loadedAt(
  { url, model }: { url: string; model: string },
  key: string | undefined,
  { downloads }: CliContext,
): Promise<Endpoint> {
  const headers = byName(key === undefined ? {} : { authorization: `Bearer ${key}` });
  const response = await downloads.fetch(`${url}/lantern/v1/status`, { headers });
  const { models } = (await response.json()) as { models: { id: string; contextSize: number }[] };
  const { contextSize } = models.find(({ id }) => id === model)!;
  return { url, key, model, contextSize };
}
