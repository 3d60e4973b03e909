// lantern ps: the servers running on this machine, and their loaded models. Servers are found by their records in the
// cache folder, or by a given address.

import { withoutEnd } from "../../../src/base/without-end.ts";
import { runningServers, type ServerRecord } from "../../../src/catalog/servers.ts";
import { SourceError } from "../../../src/index.ts";
import type { ServerStatus } from "../../server/serve.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { bytesText, tableText } from "../text.ts";

interface PsFlags {
  url?: string;
  apiKey?: string;
  json?: boolean;
}

const answerMs = 5000;

export const psCommand: CommandBody = {
  examples: ["lantern ps", "lantern ps --url http://127.0.0.1:8000"],
  define(command, context) {
    command
      .option("--url <address>", "ask this server only (default: all that run on this machine)")
      .option("--api-key <key>", "API key of the servers (default: LANTERN_API_KEY)")
      .option("--json", "print one JSON array")
      .action((flags: PsFlags) => ps(flags, context));
  },
};

/** A server with its response, or the reason why there is none. */
export interface Asked {
  url: string;
  processId: number | null;
  since: string | null;
  status: ServerStatus | null;
  error: string | null;
}

async function ps(flags: PsFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  const asked = flags.url
    ? [await ask({ url: withoutEnd(flags.url, "/") }, flags, context)]
    : await askServers(flags, context);
  const [only] = asked;
  if (flags.url && only?.error) throw new SourceError(`ps: ${only.url}: ${only.error}`);
  if (flags.json) {
    terminal.out(`${JSON.stringify(asked)}\n`);
    return;
  }
  if (asked.length === 0) {
    terminal.err('No Lantern server is running on this machine. "lantern serve" starts one.\n');
    return;
  }
  const header = ["MODEL", "MEMORY", "CONTEXT", "ANSWERING", "WAITING", "ADDRESS", "PROCESS"];
  terminal.out(tableText([header, ...asked.flatMap(rowsOf)], [1, 2, 3, 4]));
  for (const { url, error } of asked) if (error) terminal.err(`${url}: ${error}\n`);
}

/** Asks all servers that run on this machine. */
export async function askServers(
  flags: Pick<PsFlags, "apiKey">,
  context: CliContext,
): Promise<Asked[]> {
  const servers = await runningServers(context.downloads);
  return await Promise.all(servers.map((one) => ask(one, flags, context)));
}

function rowsOf({ url, processId, status }: Asked): string[][] {
  const where = [url, processId === null ? "" : String(processId)];
  if (!status) return [["?", "", "", "", "", ...where]];
  if (status.models.length === 0) return [["(none loaded)", "", "", "", "", ...where]];
  return status.models.map((model) => [
    model.id,
    bytesText(model.weightBytes + model.cacheBytes),
    String(model.contextSize),
    String(model.running),
    String(model.waiting),
    ...where,
  ]);
}

async function ask(
  server: Pick<ServerRecord, "url"> & Partial<ServerRecord>,
  flags: Pick<PsFlags, "apiKey">,
  { downloads, terminal }: CliContext,
): Promise<Asked> {
  const { url, processId = null, since = null } = server;
  const key = flags.apiKey ?? terminal.env("LANTERN_API_KEY");
  const facts = { url, processId, since };
  try {
    const response = await downloads.fetch(`${url}/lantern/v1/status`, {
      headers: key ? { authorization: `Bearer ${key}` } : {},
      signal: AbortSignal.timeout(answerMs),
    });
    if (response.status === 401) {
      return { ...facts, status: null, error: "it needs an API key. Give one with --api-key" };
    }
    if (!response.ok) {
      return {
        ...facts,
        status: null,
        error: `it answered with HTTP status ${response.status}, so it is not a Lantern server`,
      };
    }
    return { ...facts, status: (await response.json()) as ServerStatus, error: null };
  } catch (error) {
    const late = error instanceof Error && error.name === "TimeoutError";
    const reason = late ? `no answer within ${answerMs / 1000} s` : "nothing answers there";
    return { ...facts, status: null, error: reason };
  }
}
