// Reads the list of servers: a file in the field's usual form, {"mcpServers": {"files": {"command": "npx", "args": [...]}}},
// and commands or URLs of the command line.

import * as z from "zod";
import { UsageError } from "../../src/base/errors.ts";
import { issueText } from "../../src/base/issues.ts";
import { plural } from "../../src/base/plural.ts";
import { mostServers } from "./limits.ts";

export type ServerSpec = { readonly name: string } & (
  | {
      readonly kind: "stdio";
      readonly command: string;
      readonly args: readonly string[];
      readonly env: Readonly<Record<string, string>>;
      readonly cwd?: string | undefined;
    }
  | {
      readonly kind: "http";
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
    }
);

const texts = z.record(z.string(), z.string());
const common = { disabled: z.boolean().optional() };
const programInput = z.strictObject({
  type: z.literal("stdio").optional(),
  command: z.string().min(1),
  args: z.array(z.string()).optional(),
  env: texts.optional(),
  cwd: z.string().optional(),
  ...common,
});
const httpInput = z.strictObject({
  type: z.enum(["http", "streamable-http", "streamableHttp"]).optional(),
  url: z.url({ protocol: /^https?$/ }),
  headers: texts.optional(),
  ...common,
});

/** @param where The file, for messages. No message has a value of the file: it may be a key. */
export function readServers(text: string, where: string): ServerSpec[] {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch {
    throw new UsageError(`${where}: it is no JSON. ${expected}`);
  }
  const { mcpServers } = (read ?? {}) as { mcpServers?: unknown };
  if (typeof mcpServers !== "object" || mcpServers === null || Array.isArray(mcpServers)) {
    throw new UsageError(`${where}: "mcpServers" is missing. ${expected}`);
  }
  const all = Object.entries(mcpServers);
  if (all.length > mostServers) {
    throw new UsageError(
      `${where}: got ${plural(all.length, "server")}, at most ${mostServers} are possible`,
    );
  }
  return all.flatMap(([name, given]) => readServer(name, given, `${where}: mcpServers.${name}`));
}

const expected =
  'Expected {"mcpServers": {"NAME": {"command": "PROGRAM", "args": [], "env": {}}}} or {"NAME": {"url": "https://...", "headers": {}}}';

function readServer(name: string, given: unknown, where: string): ServerSpec[] {
  checkName(name, where);
  const isHttp = typeof given === "object" && given !== null && "url" in given;
  const read = (isHttp ? httpInput : programInput).safeParse(given);
  if (!read.success) {
    const issue = read.error.issues[0]!;
    const dot = issue.path.length > 0 ? "." : ": ";
    throw new UsageError(`${where}${dot}${issueText(issue)}. ${expected}`);
  }
  const { data } = read;
  if (data.disabled) return [];
  if ("url" in data) return [{ name, kind: "http", url: data.url, headers: data.headers ?? {} }];
  const { command, args = [], env = {}, cwd } = data;
  return [{ name, kind: "stdio", command, args, env, ...(cwd !== undefined && { cwd }) }];
}

function checkName(name: string, where: string): void {
  if (/^[\w .@-]{1,64}$/.test(name)) return;
  throw new UsageError(`${where}: expected a name of 1 to 64 letters, digits, spaces, . @ - or _`);
}

/** `--mcp "npx -y server /tmp"` or `--mcp https://...`; named by its number. */
export function serverOf(text: string, number: number): ServerSpec {
  const name = `mcp${number}`;
  if (/^https?:\/\//i.test(text)) {
    if (!URL.canParse(text)) throw new UsageError(`--mcp: got a URL that cannot be read`);
    return { name, kind: "http", url: text, headers: {} };
  }
  const [command, ...args] = words(text);
  if (command === undefined) {
    throw new UsageError(
      '--mcp: got no command, expected one as in --mcp "npx -y some-server", or a URL',
    );
  }
  return { name, kind: "stdio", command, args, env: {} };
}

/** Words of a command line; quotes keep spaces. No shell reads it. */
function words(text: string): string[] {
  const found = text.match(/(?:[^\s"']+|"[^"]*"|'[^']*')+/g) ?? [];
  return found.map((word) => word.replaceAll(/"([^"]*)"|'([^']*)'/g, "$1$2"));
}
