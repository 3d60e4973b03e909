// What a launch is going to do, as data, as text and as JSON. Keys are never shown.

import type { Client, Endpoint, Place, Setup } from "./client.ts";
import { type PlannedFile, planFiles } from "./files.ts";
import { pathText } from "./merge.ts";

export interface Plan {
  readonly client: Client;
  /** Where it is; undefined: it is not installed. */
  readonly program: string | undefined;
  readonly server: Endpoint;
  /** The command of our own server; undefined: one is running. */
  readonly serve: readonly string[] | undefined;
  readonly setup: Setup;
  readonly files: readonly PlannedFile[];
  /** All arguments of the program. */
  readonly args: readonly string[];
  readonly warnings: readonly string[];
}

export function makePlan(
  start: Pick<Plan, "client" | "program" | "server" | "serve" | "warnings">,
  userArgs: readonly string[],
  place: Place,
): Plan {
  const setup = start.client.setup(start.server, place);
  const files = planFiles(setup.files ?? []);
  const args = [...(setup.args ?? []), ...(userArgs.length > 0 ? userArgs : (setup.usual ?? []))];
  const key = start.server.key;
  const open = files.filter(
    ({ mode = 0o600, change }) => (mode & 0o077) !== 0 && hasKey(change.set, key),
  );
  const warnings = [
    ...start.warnings,
    ...open.map(
      ({ place: file, mode }) =>
        `Other users can read ${file} (mode ${mode!.toString(8)}), and the server's key is written into it.`,
    ),
  ];
  return { ...start, setup, files, args, warnings };
}

function hasKey(set: unknown, key: string | undefined): boolean {
  return key !== undefined && JSON.stringify(set).includes(JSON.stringify(key).slice(1, -1));
}

/** A value without the server's key. */
function shown(value: string, { key }: Endpoint): string {
  return key === undefined ? value : value.replaceAll(key, "(the server's key)");
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** What is done, line by line. */
export function planText({
  client,
  program,
  server,
  serve,
  setup,
  files,
  args,
  warnings,
}: Plan): string {
  const lines: [string, string][] = [
    ["client", client.title],
    ["program", program ?? `not installed: ${client.install}`],
    [
      "server",
      serve
        ? `lantern ${serve.map(quoted).join(" ")}, ended with the client`
        : `${server.url}, which is running`,
    ],
    ["model", `${server.model}, context ${server.contextSize} tokens`],
  ];
  for (const [name, value] of Object.entries(setup.env ?? {})) {
    lines.push(
      value === undefined ? ["unset", name] : ["set", `${name}=${quoted(shown(value, server))}`],
    );
  }
  for (const { change, place, before } of files) {
    const link = place === change.path ? "" : `, to which ${change.path} is a link`;
    lines.push([
      before ? "change" : "write",
      `${place}${link}${before ? " (a backup is kept)" : ""}`,
    ]);
    for (const { at, value } of change.set) {
      lines.push(["", `  ${pathText(at)} = ${shown(JSON.stringify(value), server)}`]);
    }
  }
  const command = [program ?? client.programs[0] ?? client.title, ...args].map(quoted).join(" ");
  lines.push(["run", shown(command, server)]);
  if (setup.next) lines.push(["then", setup.next]);
  for (const warning of warnings) lines.push(["warning", warning]);
  return lines.map(([name, text]) => `${name.padEnd(8)}${text}\n`).join("");
}

export function planJson({
  client,
  program,
  server,
  serve,
  setup,
  files,
  args,
  warnings,
}: Plan): object {
  const hidden = (value: unknown): unknown =>
    JSON.parse(shown(JSON.stringify(value), server)) as unknown;
  return {
    client: client.name,
    program: program ?? null,
    install: client.install,
    server: { url: server.url, model: server.model, contextSize: server.contextSize },
    serve: serve ?? null,
    env: hidden(
      Object.fromEntries(
        Object.entries(setup.env ?? {}).map(([name, value]) => [name, value ?? null]),
      ),
    ),
    files: files.map(({ place, change, before }) => ({
      path: place,
      exists: before !== undefined,
      set: hidden(change.set),
    })),
    args: hidden(args),
    next: setup.next ?? null,
    warnings,
  };
}
