// Who may use a server: the flags of `lantern serve` for API keys, the admin key, the token and host names, as the server's
// options. Keys come from a flag, from a file or from the environment, and go nowhere but to the server: other users of the
// machine see a program's flags, so the help names the other two.

import type { Command } from "commander";
import { UsageError } from "../index.ts";
import { hostName } from "../platform/node-cli.ts";
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
  allowHost?: string[];
}

export function addAccessFlags(command: Command): Command {
  return command
    .option(
      "--api-key <key>",
      "API key that clients have to send; other users of this machine can see flags, so better: LANTERN_API_KEY or --api-key-file (default: no key is needed)",
    )
    .option("--api-key-file <path>", "a file with API keys, one a line")
    .option(
      "--admin-key <key>",
      "key for managing models and conversations, from any machine; better: LANTERN_ADMIN_KEY or --admin-key-file (default: on this machine only, with the token in the address that is printed)",
    )
    .option("--admin-key-file <path>", "a file with the admin key")
    .option(
      "--no-token",
      "manage models and conversations without a token: every program on this machine may",
    )
    .option(
      "--allow-host <name>",
      "another host name under which this server may be reached; repeatable",
      repeatedFlag,
    );
}

export type AccessOptions = Pick<StartOptions, "apiKeys" | "adminKey" | "token" | "allowedHosts">;

export async function accessOptions(
  flags: AccessFlags,
  { terminal }: CliContext,
): Promise<AccessOptions> {
  const { hostNameOf, machineNames } = await import("../server/serve.ts"); // other commands start without it
  const apiKeys = await keysOf("api-key", flags.apiKey, flags.apiKeyFile, terminal);
  const adminKeys = await keysOf("admin-key", flags.adminKey, flags.adminKeyFile, terminal);
  const [adminKey, second] = adminKeys;
  if (second !== undefined) {
    throw new UsageError("--admin-key-file: the file has several lines, expected one key");
  }
  if (adminKey !== undefined && apiKeys.includes(adminKey)) {
    throw new UsageError(
      "--admin-key: the admin key is also an API key, so that every client could manage models and conversations. Choose another one",
    );
  }
  if (adminKey !== undefined && !flags.token) {
    throw new UsageError(
      "flags: --no-token was given, and an admin key (--admin-key, --admin-key-file or LANTERN_ADMIN_KEY), which needs no token. Drop one",
    );
  }
  for (const name of flags.allowHost ?? []) {
    if (hostNameOf(name) !== undefined) continue;
    throw new UsageError(
      `--allow-host: got ${JSON.stringify(name)}, expected a host name as in lantern.example.org`,
    );
  }
  return {
    apiKeys,
    ...(adminKey !== undefined && { adminKey }),
    ...(!flags.token && { token: false }),
    allowedHosts: [...machineNames(hostName()), ...(flags.allowHost ?? [])],
  };
}

/** Those of the flag and of the file; without either, the environment's. */
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
    throw new UsageError(`--${name}-file: the file is empty, expected a key`);
  }
  const usual = file === undefined && given === undefined ? terminal.env(variable) : undefined;
  const sources: [string, string | undefined][] = [
    [`--${name}`, given],
    [variable, usual],
    ...inFile.map((key): [string, string] => [`--${name}-file`, key]),
  ];
  return sources.flatMap(([source, key]) => (key === undefined ? [] : checked(source, key)));
}

/** What cannot stand in a header cannot be sent, and would lock everybody out. No message shows a key. */
function checked(source: string, key: string): string {
  if (key === "") throw new UsageError(`${source}: got an empty text, expected a key`);
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(key)) return key;
  throw new UsageError(
    `${source}: the key has a character that cannot be sent, expected letters, digits and signs of ASCII, without spaces at the ends`,
  );
}
