// The texts of a command that takes several: its arguments, a file with a separator between them, or standard input.

import { UsageError } from "../../src/index.ts";
import type { Terminal } from "../../src/platform/node-cli.ts";

export interface TextsFlags {
  file?: string;
  embdSeparator: string;
}

/** `command` and `what` are for the message if there is none. */
export async function textsOf(
  words: readonly string[],
  { file, embdSeparator }: TextsFlags,
  terminal: Terminal,
  { command, what }: { command: string; what: string },
): Promise<string[]> {
  if (embdSeparator === "") {
    throw new UsageError(
      `${command}: --embd-separator: got nothing, expected a text, as in "<#sep#>"`,
    );
  }
  const split = (text: string): string[] =>
    text.replace(/\r?\n$/, "").split(embdSeparator === "\n" ? /\r?\n/ : embdSeparator);
  const read = async (word: string): Promise<string[]> =>
    word === "-" ? split(await terminal.readInput()) : [word];
  const given = (await Promise.all(words.map(read))).flat();
  if (file === undefined && given.length === 0) {
    throw new UsageError(
      `${command}: got no ${what}, expected at least one. Give it in quotes, or name a file with -f (-: standard input)`,
    );
  }
  if (file === undefined) return given;
  const inFile = file === "-" ? await terminal.readInput() : await terminal.readText(file);
  return [...given, ...split(inFile)];
}
