// The other names of flags, and flags that stand for several. Translated before anything is parsed, so that every command knows them:
// commander has short names of one letter only, and would read -ngl as -n with the value "gl". llama-server-flags.ts has the table.

import { llamaServerFlags } from "./llama-server-flags.ts";

/** The name by which sentences and the parser know a flag: its first long one. */
export const chiefName = (names: string): string =>
  names.split(" ").find((name) => name.startsWith("--"))!;

const others: ReadonlyMap<string, readonly string[]> = new Map(
  llamaServerFlags.flatMap(({ names, ours, stands }) =>
    names
      .split(" ")
      .map((name): [string, readonly string[]] => [name, stands ?? [ours ?? chiefName(names)]])
      .filter(([name, words]) => words.length > 1 || words[0] !== name),
  ),
);

/** The arguments with one name per flag; those after "--" are no flags of ours. */
export function withOneName(args: readonly string[]): string[] {
  const end = args.indexOf("--");
  const isServe = args.includes("serve");
  return args.flatMap((arg, at) => {
    if (end >= 0 && at > end) return arg;
    if (!isServe && arg === "--draft") return arg; // llama-server's has gone; "lantern limits" has one
    const [, name, rest] = /^(-[^=]*)(=.*)?$/s.exec(arg) ?? [];
    const words = name === undefined ? undefined : others.get(name);
    if (words === undefined) return arg;
    return words.length === 1 ? words[0]! + (rest ?? "") : words;
  });
}
