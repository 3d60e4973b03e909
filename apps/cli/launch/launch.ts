// `lantern launch CLIENT [MODEL]`: finds or starts a server, configures the client, runs it, and ends what it started. The client's exit
// code is the command's.

import { unknownName } from "../../../src/base/options.ts";
import { SourceError, UsageError } from "../../../src/index.ts";
import { configPlace } from "../../../src/platform/node-config-file.ts";
import { findProgram, runProgram } from "../../../src/platform/node-programs.ts";
import type { CliContext } from "../command.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel } from "../load-model.ts";
import { plural, tableText } from "../text.ts";
import { confirm } from "./ask.ts";
import type { Client, Place } from "./client.ts";
import { clients } from "./clients/table.ts";
import { restorable, restore, writeFiles } from "./files.ts";
import { type ChosenModel, namedModel, offeredModel } from "./models.ts";
import { makePlan, type Plan, planJson, planText } from "./plan.ts";
import {
  findServer,
  keyOfServers,
  type StartedServer,
  serveArgs,
  startServer,
  usualUrl,
} from "./server.ts";

export interface LaunchFlags {
  readonly ctxSize?: number;
  readonly url?: string;
  readonly dryRun?: boolean;
  readonly yes?: boolean;
  readonly json?: boolean;
}

export function clientNamed(name: string): Client {
  const found = clients.find((client) => client.name === name || client.aliases?.includes(name));
  if (found) return found;
  const names = clients.map((client) => client.name);
  throw new UsageError(`launch: ${unknownName("client", name, names)}`);
}

/** All clients, and where those are that are installed. */
export function listClients({ json }: LaunchFlags, context: CliContext): void {
  const { terminal } = context;
  const rows = clients.map((client) => ({
    client,
    program: programOf(client, placeOf(client, context)),
  }));
  if (json) {
    const listed = rows.map(({ client, program }) => ({
      name: client.name,
      aliases: client.aliases ?? [],
      title: client.title,
      summary: client.summary,
      program: program ?? null,
      install: client.install,
      context: client.context,
      ran: client.ran ?? null,
    }));
    terminal.out(`${JSON.stringify(listed)}\n`);
    return;
  }
  const header = ["NAME", "CLIENT", "INSTALLED", "CONTEXT", "TRIED WITH", ""];
  const lines = rows.map(({ client, program }) => [
    client.name,
    client.title,
    program === undefined ? "-" : "yes",
    String(client.context.least),
    client.ran ?? "-",
    program === undefined ? client.install : client.summary,
  ]);
  terminal.out(tableText([header, ...lines], [3]));
  terminal.err(
    "CONTEXT: tokens that it needs at least. TRIED WITH: the version that was run with Lantern; -: from its documents only.\n",
  );
}

/** Puts the client's configuration back as it was before the first launch. */
export async function undoLaunch(
  client: Client,
  { yes = false, dryRun = false }: LaunchFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  const place = placeOf(client, context);
  const folder = { join: (name: string) => place.join(place.own, name) };
  const files = restorable(folder);
  if (files.length === 0) {
    terminal.err(`Nothing to undo: launch has not changed a file of ${client.title}.\n`);
    return;
  }
  for (const { path, kind, isChanged } of files) {
    const since = isChanged
      ? `; it was changed since, and that version is kept in ${place.own}`
      : "";
    terminal.err(`${kind.padEnd(9)}${path}${since}\n`);
  }
  if (dryRun) return;
  if (files.some(({ isChanged }) => isChanged)) {
    const refused = `${client.title} has changed its configuration since, and nothing was undone`;
    await confirm("Put the old files back?", { yes, refused }, terminal);
  }
  restore(folder);
  terminal.err(`Undone: ${plural(files.length, "file")} of ${client.title}.\n`);
}

export async function launch(
  client: Client,
  modelName: string | undefined,
  userArgs: readonly string[],
  flags: LaunchFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  const place = placeOf(client, context);
  const program = programOf(client, place);
  const { plan, model } = await planned(
    client,
    modelName,
    userArgs,
    { flags, place, program },
    context,
  );
  if (flags.dryRun) {
    terminal.out(flags.json ? `${JSON.stringify(planJson(plan))}\n` : planText(plan));
    return;
  }
  for (const warning of plan.warnings) context.log.warn(`Warning: ${warning}\n`);
  if (program === undefined) {
    throw new SourceError(
      `launch: ${client.title} is not installed. Install it: ${client.install}. Then repeat this`,
    );
  }
  if (plan.files.length > 0) {
    terminal.err(planText(plan));
    const refused = `no file of ${client.title} was changed, and it was not started`;
    await confirm("Change these files?", { yes: flags.yes ?? false, refused }, terminal);
  }
  const started = model && (await startedServer(model, place, context));
  try {
    const { server } = plan;
    const final = started ? makePlan({ ...plan, server: started.endpoint }, userArgs, place) : plan;
    writeFiles(final.files, { join: (name) => place.join(place.own, name) });
    context.exitCode = await runProgram(program, final.args, final.setup.env ?? {}).ended;
    if (final.setup.next) terminal.err(`${final.setup.next}\n`);
    if (client.stays && started) await untilInterrupted(started.endpoint.url, context);
    else if (client.stays) terminal.err(`${client.title} uses ${server.url}.\n`);
  } finally {
    await started?.own.stop();
  }
}

interface Known {
  readonly flags: LaunchFlags;
  readonly place: Place;
  readonly program: string | undefined;
}

/** The whole plan, before anything is done. `model`: the one that a server of our own is started with. */
async function planned(
  client: Client,
  modelName: string | undefined,
  userArgs: readonly string[],
  { flags, place, program }: Known,
  context: CliContext,
): Promise<{ plan: Plan; model: ChosenModel | undefined }> {
  const wanted = { model: modelName, url: flags.url, client };
  const running = await findServer(wanted, context);
  if (running) {
    const { contextSize } = running;
    const { least } = client.context;
    const small = `${client.title} needs a context of ${least} tokens at least, and the running server gives ${contextSize}. Start it with --ctx-size ${client.context.wanted}`;
    const warnings = contextSize < least ? [small] : [];
    const start = { client, program, server: running, serve: undefined, warnings };
    return { plan: makePlan(start, userArgs, place), model: undefined };
  }
  const model =
    modelName === undefined
      ? await offeredModel(client, context)
      : await namedModel(modelName, client, flags.ctxSize, context);
  const chosen = flags.ctxSize === undefined ? model : { ...model, contextSize: flags.ctxSize };
  const server = {
    url: usualUrl,
    key: keyOfServers(context),
    model: servedName(chosen.name),
    contextSize: chosen.contextSize ?? client.context.wanted,
  };
  const start = { client, program, server, serve: serveArgs(chosen), warnings: model.warnings };
  return { plan: makePlan(start, userArgs, place), model: chosen };
}

/** The name that `lantern serve` gives a model. */
function servedName(name: string): string {
  const last = name.split(/[\\/]/).findLast((part) => part !== "") ?? name;
  return last.replace(/\.(gguf|bin)$/i, "");
}

async function startedServer(
  model: ChosenModel,
  place: Place,
  context: CliContext,
): Promise<StartedServer> {
  if (model.path === undefined) await locateModel(model.name, context); // a download shows its progress here
  return await startServer(model, place.join(place.own, "server.log"), context);
}

/** A window is used after its program has returned. */
async function untilInterrupted(url: string, { terminal }: CliContext): Promise<void> {
  using interrupt = interruptible(terminal);
  terminal.err(`The server at ${url} runs until Ctrl-C.\n`);
  await new Promise<void>((resolve) => {
    interrupt.signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

function placeOf(client: Client | undefined, { terminal, downloads }: CliContext): Place {
  const env = (name: string): string | undefined => terminal.env(name);
  const { home, system, own } = configPlace(env);
  return { home, system, env, join: downloads.join, own: own(client?.name ?? "") };
}

function programOf({ programs, places }: Client, place: Place): string | undefined {
  return findProgram([...programs, ...(places?.(place) ?? [])], place.env);
}
