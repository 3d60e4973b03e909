// The flags of the rows of src/options/: every row with a flag is one, in the order of the table. flags.ts adds them to commands.

import { type Command, InvalidArgumentError, Option } from "commander";
import { rangeText } from "../../src/options/range.ts";
import {
  type ChoiceRow,
  flagRange,
  helpOf,
  type NumberRow,
  type OptionRow,
} from "../../src/options/row.ts";
import { byteSizeFlag, numberFlag, repeatedFlag } from "./flag-values.ts";

type Rows = Readonly<Record<string, OptionRow>>;

/** One row's flag, for a command that has a few of them. @param usual The command's own default. */
export function rowFlag(row: OptionRow, usual?: unknown): Option {
  const { usual: _, ...plain } = row;
  const option = new Option(row.flag!, helpOf(usual === undefined ? row : plain));
  return withReader(usual === undefined ? option : option.default(usual), row);
}

/** @param defaults Of this command, by the rows' names. */
export function addRowFlags(
  command: Command,
  rows: Rows,
  defaults: Readonly<Record<string, unknown>> = {},
): Command {
  for (const [name, row] of Object.entries(rows)) {
    if (row.flag === undefined) continue;
    command.addOption(rowFlag(row, Object.hasOwn(defaults, name) ? defaults[name] : undefined));
    if (row.otherFlag !== undefined) {
      const same = `the same as ${new Option(row.flag).long}`;
      command.addOption(withReader(new Option(row.otherFlag, same), row));
    }
    if (row.type === "boolean" && row.noHelp !== undefined) {
      command.option(row.flag.replace(/--/, "--no-"), row.noHelp);
    }
  }
  return command;
}

function withReader(option: Option, row: OptionRow): Option {
  switch (row.type) {
    case "number":
      if (row.unit === "bytes") return option.argParser(byteSizeFlag);
      return option.argParser(numberOrWord(row));
    case "texts":
      return option.argParser(repeatedFlag);
    case "choice":
      return withChoices(option, row);
    default:
      return option;
  }
}

/** A number, or one of the row's words: "all". */
function numberOrWord(row: NumberRow): (text: string) => number {
  const read = numberFlag(flagRange(row));
  const { words, flagWords = {} } = row;
  if (words === undefined) return read;
  return (text) => {
    const word = Object.hasOwn(flagWords, text) ? flagWords[text]! : text;
    if (words.includes(word)) return word as unknown as number;
    try {
      return read(text);
    } catch {
      const expected = `${words.join(", ")} or ${rangeText(flagRange(row))}`;
      throw new InvalidArgumentError(`Expected ${expected}.`);
    }
  };
}

/** Texts as they are typed: rowOptions() translates them; numbers are read. */
function withChoices(option: Option, { values, flagWords = {} }: ChoiceRow): Option {
  const known = Object.keys(flagWords);
  const others = values.filter((value) => typeof value !== "boolean");
  const texts = [...known, ...others.map(String)];
  option.choices(texts);
  const check = option.parseArg!;
  return option.argParser((text: string, before: unknown) => {
    const choice = check(text, before as string);
    return others.find((value) => String(value) === choice) ?? choice;
  });
}

/** The options that these flags say, by their names in the API. */
export function rowOptions(rows: Rows, flags: object): Readonly<Record<string, unknown>> {
  const options: Record<string, unknown> = {};
  for (const [name, row] of Object.entries(rows)) {
    const given = [row.flag, row.otherFlag].flatMap((flag) => {
      if (flag === undefined) return [];
      return (flags as Record<string, unknown>)[new Option(flag).attributeName()] ?? [];
    });
    const isUsual = row.type === "boolean" && given[0] === row.default;
    if (given.length > 0 && !isUsual) {
      const value = readValue(row, given);
      if (row.type !== "number" || value !== row.none) options[name] = value;
    }
  }
  return options;
}

function readValue(row: OptionRow, given: readonly unknown[]): unknown {
  if (row.type === "texts") return textsOf(row, given);
  if (row.type === "number" && given.length > 1) return Math.min(...(given as number[]));
  if (row.type !== "choice" || row.flagWords === undefined) return given[0];
  const text = String(given[0]);
  return Object.hasOwn(row.flagWords, text) ? row.flagWords[text] : given[0];
}

function textsOf(row: OptionRow & { type: "texts" }, given: readonly unknown[]): string[] {
  const texts = (given as string[]).filter((text) => text !== row.none);
  if (!row.escapes) return texts;
  return texts.map((text) => text.replaceAll("\\n", "\n").replaceAll("\\t", "\t"));
}
