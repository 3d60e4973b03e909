// lantern batch list, status and cancel: the batches of a running server, through its API as any client would.

import type { Command } from "commander";
import { withoutEnd } from "../../src/base/without-end.ts";
import { runningServers } from "../../src/catalog/servers.ts";
import { SourceError, UsageError } from "../../src/index.ts";
import type { CliContext } from "./command.ts";
import { plural, tableText } from "./text.ts";

interface ServerFlags {
  url?: string;
  apiKey?: string;
  json?: boolean;
}

/** The part of OpenAI's object that is shown here. */
interface ShownBatch {
  id: string;
  status: string;
  endpoint: string;
  model: string | null;
  created_at: number;
  output_file_id: string | null;
  error_file_id: string | null;
  request_counts: { total: number; completed: number; failed: number };
  usage: { input_tokens: number; output_tokens: number };
  errors: { data: { message: string }[] } | null;
}

export function defineServerBatches(command: Command, context: CliContext): void {
  const server = (name: string, summary: string): Command =>
    command
      .command(name)
      .description(summary)
      .option("--url <address>", "the server (default: the one that runs on this machine)")
      .option("--api-key <key>", "its API key (default: LANTERN_API_KEY)")
      .option("--json", "print JSON");
  server("list", "the batches of a running server, the newest first").action(
    async (_: unknown, self: Command) => {
      const flags = self.optsWithGlobals<ServerFlags>();
      const { data } = await ask<{ data: ShownBatch[] }>(
        "/v1/batches?limit=100",
        "GET",
        flags,
        context,
      );
      if (flags.json) return context.terminal.out(`${JSON.stringify(data)}\n`);
      if (data.length === 0) return context.terminal.err("The server has no batches.\n");
      context.terminal.out(tableText([heads, ...data.map(rowOf)], [2, 3, 4]));
    },
  );
  for (const [name, summary, path, method] of [
    ["status", "one batch of a running server", "", "GET"],
    ["cancel", "cancel a batch of a running server", "/cancel", "POST"],
  ] as const) {
    server(name, summary)
      .argument("<id>", "as `lantern batch list` shows it")
      .action(async (id: string, _: unknown, self: Command) => {
        const flags = self.optsWithGlobals<ServerFlags>();
        const where = `/v1/batches/${encodeURIComponent(id)}${path}`;
        const batch = await ask<ShownBatch>(where, method, flags, context);
        context.terminal.out(flags.json ? `${JSON.stringify(batch)}\n` : batchText(batch));
      });
  }
}

const heads = ["BATCH", "STATUS", "DONE", "FAILED", "OF", "ENDPOINT", "CREATED"];

function rowOf(batch: ShownBatch): string[] {
  const { total, completed, failed } = batch.request_counts;
  const created = new Date(batch.created_at * 1000).toISOString().slice(0, 16).replace("T", " ");
  return [
    ...[batch.id, batch.status, String(completed), String(failed), String(total)],
    ...[batch.endpoint, created],
  ];
}

function batchText(batch: ShownBatch): string {
  const { total, completed, failed } = batch.request_counts;
  const files = [
    ["output", batch.output_file_id],
    ["errors", batch.error_file_id],
  ].flatMap(([what, id]) => (id ? [`  ${what}     GET /v1/files/${id}/content`] : []));
  const wrong = batch.errors?.data.slice(0, 10).map(({ message }) => `  ${message}`) ?? [];
  return `${[
    `${batch.id}: ${batch.status}`,
    `  requests   ${completed} of ${plural(total, "request")} answered, ${failed} failed`,
    `  tokens     ${batch.usage.input_tokens} in prompts, ${batch.usage.output_tokens} generated`,
    ...files,
    ...wrong,
  ].join("\n")}\n`;
}

const answerMs = 10_000;

async function ask<T>(
  path: string,
  method: "GET" | "POST",
  flags: ServerFlags,
  { downloads, terminal }: CliContext,
): Promise<T> {
  const url = withoutEnd(flags.url ?? (await onlyServer(downloads)), "/");
  const key = flags.apiKey ?? terminal.env("LANTERN_API_KEY");
  const response = await downloads
    .fetch(url + path, {
      method,
      headers: key ? { authorization: `Bearer ${key}` } : {},
      signal: AbortSignal.timeout(answerMs),
    })
    .catch((error: unknown) => {
      throw new SourceError(`batch: nothing answers at ${url}`, { cause: error });
    });
  const body = (await response.json().catch(() => ({}))) as { error?: { message?: string } };
  if (response.ok) return body as T;
  const why = body.error?.message ?? `HTTP status ${response.status}`;
  throw new SourceError(`batch: ${url}: ${why}`);
}

async function onlyServer(downloads: CliContext["downloads"]): Promise<string> {
  const servers = await runningServers(downloads);
  if (servers.length === 1) return servers[0]!.url;
  const found =
    servers.length === 0
      ? 'no server runs on this machine ("lantern serve" starts one)'
      : `${servers.length} servers run on this machine: ${servers.map(({ url }) => url).join(", ")}`;
  throw new UsageError(`batch: ${found}. Name one with --url ADDRESS`);
}
