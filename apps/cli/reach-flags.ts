// The flags of `lantern serve` about how clients reach it: address, TLS, prefix, files of the user's own, origins, times. Under
// llama-server's names; as options of the server.

import type { Command } from "commander";
import { withoutEnd } from "../../src/base/without-end.ts";
import { UsageError } from "../../src/index.ts";
import { staticFolder } from "../../src/platform/node-static.ts";
import { socketFileOf } from "../server/host-names.ts";
import type { StartOptions } from "../server/serve.ts";
import type { CliContext } from "./command.ts";
import { numberFlag, repeatedFlag } from "./flag-values.ts";

export interface ReachFlags {
  host: string;
  port: number;
  reusePort?: boolean;
  sslKeyFile?: string;
  sslCertFile?: string;
  apiPrefix?: string;
  path?: string;
  cors?: string[];
  corsMethods?: string;
  corsHeaders?: string;
  corsCredentials: boolean;
  ssePingInterval?: number;
  timeout: number;
  maxBody: number;
}

const megabyte = 2 ** 20;

export function addReachFlags(command: Command): Command {
  return command
    .option(
      "--host <address>",
      "address to listen on; 0.0.0.0: all addresses of this machine; unix:PATH, or a path that ends in .sock: a UNIX socket",
      "127.0.0.1",
    )
    .option(
      "--port <n>",
      "port to listen on; 0: any free port",
      numberFlag({ integer: true, min: 0, max: 65535 }),
      8080,
    )
    .option("--reuse-port", "let other servers listen on the same port; the system divides clients")
    .option("--ssl-key-file <path>", "private key for HTTPS, in PEM; with --ssl-cert-file")
    .option(
      "--ssl-cert-file <path>",
      "certificate for HTTPS, in PEM, with those that it depends on",
    )
    .option(
      "--api-prefix <path>",
      "what the path of every request begins with, as in /llm, for a proxy that passes it on",
    )
    .option(
      "--path <folder>",
      "serve the files of this folder instead of the web app; hidden files and links out of it are left out",
    )
    .option(
      "--cors <origins>",
      "let web pages of these origins use the APIs, as in https://example.org or app://*; localhost: pages from this machine, *: all pages; with commas or repeatable; LANTERN_ORIGINS adds to them (also: --cors-origins)",
      originsFlag,
    )
    .option(
      "--cors-methods <list>",
      "methods that such pages may use (default: those of the route)",
    )
    .option(
      "--cors-headers <list>",
      "headers that such pages may send (default: those that the browser asks for)",
    )
    .option("--cors-credentials", "let such pages send credentials (default)", true)
    .option("--no-cors-credentials", "they may not")
    .option(
      "--sse-ping-interval <s>",
      "how often an answer that is still computed sends something that clients skip, in seconds; -1: never (default: 12)",
      numberFlag({ min: 0.001, max: 86_400, also: -1 }),
    )
    .option(
      "--timeout <s>",
      "how long a client may take to send its request, in seconds",
      numberFlag({ min: 1 }),
      60,
    )
    .option(
      "--max-body <mb>",
      "largest request body, in MB",
      numberFlag({ min: 0.001, max: 1024 }),
      16,
    );
}

function originsFlag(text: string, before: string[] | undefined): string[] {
  const origins = text.split(",").map((origin) => origin.trim());
  return origins.reduce((all: string[] | undefined, one) => repeatedFlag(one, all), before) ?? [];
}

/** Files are read before a model is loaded: what is wrong with them is said at once. */
export async function reachOptions(
  flags: ReachFlags,
  { terminal }: CliContext,
): Promise<Partial<StartOptions>> {
  const { corsMethods, corsHeaders, ssePingInterval: beat } = flags;
  const variable = terminal.env("LANTERN_ORIGINS");
  const tls = await tlsOf(flags, terminal);
  const prefix = prefixOf(flags.apiPrefix);
  return {
    host: flags.host,
    port: flags.port,
    reusePort: flags.reusePort ?? false,
    ...(tls && { tls }),
    ...(prefix !== "" && { apiPrefix: prefix }),
    ...(flags.path !== undefined && { staticFiles: await staticFolder(flags.path) }),
    corsOrigins: [...(flags.cors ?? []), ...(variable ? originsFlag(variable, undefined) : [])],
    corsRules: {
      ...(corsMethods !== undefined && { methods: corsMethods }),
      ...(corsHeaders !== undefined && { headers: corsHeaders }),
      credentials: flags.corsCredentials,
    },
    ...(beat !== undefined && { heartbeatMs: beat < 0 ? Number.POSITIVE_INFINITY : beat * 1000 }),
    maxBodyBytes: Math.round(flags.maxBody * megabyte),
    requestTimeoutMs: flags.timeout * 1000,
    headersTimeoutMs: Math.min(15, flags.timeout) * 1000,
  };
}

async function tlsOf(
  { sslKeyFile, sslCertFile }: ReachFlags,
  terminal: CliContext["terminal"],
): Promise<StartOptions["tls"]> {
  if (sslKeyFile === undefined && sslCertFile === undefined) return undefined;
  if (sslKeyFile === undefined || sslCertFile === undefined) {
    const [got, missing] =
      sslKeyFile === undefined
        ? ["--ssl-cert-file", "--ssl-key-file"]
        : ["--ssl-key-file", "--ssl-cert-file"];
    throw new UsageError(
      `flags: got ${got} alone, expected both files. Add ${missing}, or drop it`,
    );
  }
  const [key, cert] = [await terminal.readText(sslKeyFile), await terminal.readText(sslCertFile)];
  const { tlsFault } = await import("../../src/platform/node-tls.ts");
  const fault = tlsFault(key, cert);
  if (fault === undefined) return { key, cert };
  const which = {
    key: `--ssl-key-file: "${sslKeyFile}"`,
    cert: `--ssl-cert-file: "${sslCertFile}"`,
    both: `--ssl-key-file, --ssl-cert-file: "${sslKeyFile}" and "${sslCertFile}"`,
  }[fault.of];
  throw new UsageError(`${which}: ${fault.why}`);
}

/** "/llm", without the slash at the end; "": none. */
function prefixOf(given: string = ""): string {
  const prefix = withoutEnd(given, "/");
  if (prefix === "" || /^(\/[\w.~-]+)+$/.test(prefix)) return prefix;
  throw new UsageError(
    `--api-prefix: got ${JSON.stringify(given)}, expected a path of letters, digits and - . _ ~ that begins with a slash, as in /llm`,
  );
}

/** The web app asks for its files and data at the root of an address. */
export const hidesPage = ({ apiPrefix, host }: ReachFlags): boolean =>
  prefixOf(apiPrefix) !== "" || socketFileOf(host) !== undefined;
