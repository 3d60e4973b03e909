// Access flags of `lantern serve`: API keys, the admin key, the token and host names, as options of the server. Keys
// come from a flag, a file or the environment, and go only to the server. Other users of the machine can see a
// program's flags, so the help names the other two.

import type { Command } from "commander";
import { UsageError } from "../../src/index.ts";
import { hostName } from "../../src/platform/node-cli.ts";
import { keptSecret } from "../../src/platform/node-kept-secret.ts";
import type { StartOptions } from "../server/serve.ts";
import type { CliContext } from "./command.ts";
import { repeatedFlag } from "./flag-values.ts";

export interface AccessFlags {
  apiKey?: string;
  apiKeyFile?: string;
  adminKey?: string;
  adminKeyFile?: string;
  /** false: --no-token. */
  token: boolean;
  newToken?: boolean;
  allowHost?: string[];
}

export function addAccessFlags(command: Command): Command {
  return command
    .option(
      "--api-key <key>",
      "API key that clients must send; other users of this machine can see flags, so LANTERN_API_KEY or --api-key-file is safer (default: no key is needed)",
    )
    .option("--api-key-file <path>", "file with API keys, one per line")
    .option(
      "--admin-key <key>",
      "key for managing models and conversations from any machine; LANTERN_ADMIN_KEY or --admin-key-file is safer (default: only this machine may, with the token in the address that is printed)",
    )
    .option("--admin-key-file <path>", "file with the admin key")
    .option(
      "--no-token",
      "let every program on this machine manage models and conversations, without a token",
    )
    .option(
      "--new-token",
      "make a new token, which stays the same from then on: links, open pages and bookmarks of earlier starts are not let in any more",
    )
    .option(
      "--allow-host <name>",
      "another host name that clients may reach this server by; repeatable",
      repeatedFlag,
    );
}

export type AccessOptions = Pick<
  StartOptions,
  "apiKeys" | "adminKey" | "token" | "secret" | "allowedHosts"
>;

export async function accessOptions(
  flags: AccessFlags,
  { terminal, log }: CliContext,
): Promise<AccessOptions> {
  const { hostNameOf, machineNames } = await import("../server/serve.ts"); // other commands start without it
  const apiKeys = await keysOf("api-key", flags.apiKey, flags.apiKeyFile, terminal);
  const adminKeys = await keysOf("admin-key", flags.adminKey, flags.adminKeyFile, terminal);
  const [adminKey, second] = adminKeys;
  if (second !== undefined) {
    throw new UsageError(
      "--admin-key-file: got a file with several lines, expected one key. Leave one line in it",
    );
  }
  if (adminKey !== undefined && apiKeys.includes(adminKey)) {
    throw new UsageError(
      "--admin-key: the admin key is also an API key, so every client could manage models and conversations. Choose another admin key",
    );
  }
  if (adminKey !== undefined && !flags.token) {
    throw new UsageError(
      "flags: got both --no-token and an admin key (--admin-key, --admin-key-file or LANTERN_ADMIN_KEY), expected one of them. Drop one",
    );
  }
  if (flags.newToken && !flags.token) {
    throw new UsageError(
      "flags: got both --no-token and --new-token, expected one of them. Drop one",
    );
  }
  for (const name of flags.allowHost ?? []) {
    if (hostNameOf(name) !== undefined) continue;
    throw new UsageError(
      `--allow-host: got ${JSON.stringify(name)}, expected a host name, as in lantern.example.org`,
    );
  }
  const { secret, warning } = flags.token ? keptSecret({ renew: flags.newToken ?? false }) : {};
  if (warning !== undefined) log.warn(`Warning: ${warning}\n`);
  return {
    apiKeys,
    ...(secret !== undefined && { secret }),
    ...(adminKey !== undefined && { adminKey }),
    ...(!flags.token && { token: false }),
    allowedHosts: [...machineNames(hostName()), ...(flags.allowHost ?? [])],
  };
}

/** The keys of the flag and of the file; without either, those of the environment. */
async function keysOf(
  name: "api-key" | "admin-key",
  given: string | undefined,
  file: string | undefined,
  terminal: CliContext["terminal"],
): Promise<string[]> {
  const variable = name === "api-key" ? "LANTERN_API_KEY" : "LANTERN_ADMIN_KEY";
  const lines = file === undefined ? [] : (await terminal.readText(file)).split(/\r?\n/);
  const inFile = lines.map((line) => line.trim()).filter((line) => line !== "");
  if (file !== undefined && inFile.length === 0) {
    throw new UsageError(`--${name}-file: got an empty file, expected a key`);
  }
  const usual = file === undefined && given === undefined ? terminal.env(variable) : undefined;
  const sources: [string, string | undefined][] = [
    [`--${name}`, given],
    [variable, usual],
    ...inFile.map((key): [string, string] => [`--${name}-file`, key]),
  ];
  return sources.flatMap(([source, key]) => (key === undefined ? [] : checked(source, key)));
}

/** A key that cannot be in a header cannot be sent, and would lock all clients out. No message shows a key. */
function checked(source: string, key: string): string {
  if (key === "")
    throw new UsageError(`${source}: got an empty key, expected at least one character`);
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(key)) return key;
  throw new UsageError(
    `${source}: the key has a character that an HTTP header cannot carry, expected printable ASCII without spaces at either end. Choose another key`,
  );
}
