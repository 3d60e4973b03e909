// Writes docs/reference/: every command with its flags, from commander, and every option that is a row of src/options/.
//
//   node scripts/references.ts
//
// test/docs/references.test.ts fails where a page is not what this script writes.

import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Command, Help, type Option } from "commander";
import type { CliContext } from "../apps/cli/command.ts";
import { commands } from "../apps/cli/commands/table.ts";
import { llamaServerFlags } from "../apps/cli/llama-server-flags.ts";
import { generationRows } from "../src/options/generation.ts";
import { rangeText } from "../src/options/range.ts";
import { expectedOf, fieldRange, flagRange, type OptionRow } from "../src/options/row.ts";
import { samplingRows } from "../src/options/sampling.ts";

const generated =
  "Written by `node scripts/references.ts`: change the flags and rows, not this page.";

/** Of a table: a bar in a text would end its cell. */
const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("<", "&lt;");
const code = (text: string): string => `\`${text.replaceAll("|", "\\|")}\``;
const row = (...cells: readonly string[]): string => `| ${cells.join(" | ")} |`;

async function allCommands(): Promise<[name: string, command: Command][]> {
  const found: [string, Command][] = [];
  const take = (name: string, command: Command): void => {
    found.push([name, command]);
    for (const inner of command.commands) take(`${name} ${inner.name()}`, inner);
  };
  for (const { name, summary, body } of commands) {
    const command = new Command(name).summary(summary).description(summary);
    (await body()).define(command, {} as CliContext);
    take(name, command);
  }
  return found.sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Those of llama-server that change nothing or are refused have a table of their own. */
const shownOf = (command: Command): readonly Option[] =>
  command.options.filter(({ hidden }) => !hidden);

const flagRow = (option: Option): string =>
  row(code(option.flags), cell(new Help().optionDescription(option)));

function usage(name: string, command: Command): string {
  const args = command.registeredArguments.map((argument) => {
    const text = argument.name() + (argument.variadic ? "..." : "");
    return argument.required ? `<${text}>` : `[${text}]`;
  });
  return ["lantern", name, ...args].join(" ");
}

function llamaServerTable(): string {
  const text = ({ ours, stands, note, refused }: (typeof llamaServerFlags)[number]): string => {
    if (ours !== undefined) return `as ${code(ours)}`;
    if (stands) return `as ${code(stands.join(" "))}`;
    return note === undefined ? `refused: ${cell(refused!)}` : `changes nothing: ${cell(note)}`;
  };
  const byText = new Map<string, string[]>();
  for (const flag of llamaServerFlags) {
    const names = byText.get(text(flag)) ?? [];
    byText.set(text(flag), [...names, ...flag.names.split(" ")]);
  }
  const rows = [...byText].map(([said, names]) => row(names.map(code).join(" "), said));
  return ["| flag | |", "|---|---|", ...rows].join("\n");
}

/** docs/reference/cli.md */
export async function cliReference(): Promise<string> {
  const all = await allCommands();
  const users = new Map<string, number>();
  for (const [, command] of all)
    for (const option of shownOf(command)) {
      const line = flagRow(option);
      users.set(line, (users.get(line) ?? 0) + 1);
    }
  const isShared = (option: Option): boolean => users.get(flagRow(option))! > 1;
  const shared = [...users].filter(([, count]) => count > 1).map(([line]) => line);
  const pages = all.flatMap(([name, command]) => {
    const own = shownOf(command).filter((option) => !isShared(option));
    const others = shownOf(command)
      .filter(isShared)
      .map((option) => code(option.long ?? option.flags));
    const summary = (command.summary() || command.description()).replace(/\.$/, "");
    return [
      `## lantern ${name}`,
      `${summary === "" ? "" : `${summary[0]!.toUpperCase()}${summary.slice(1)}: `}${code(usage(name, command))}`,
      ...(own.length > 0 ? [["| flag | |", "|---|---|", ...own.map(flagRow)].join("\n")] : []),
      ...(others.length > 0
        ? [
            `${own.length > 0 ? "And of" : "Of"} [the flags of several commands](#flags-of-several-commands): ${others.join(" ")}`,
          ]
        : []),
    ];
  });
  return `${[
    "# Commands and flags",
    `${generated} [commands](../use/commands.md) says what each command is for; \`lantern COMMAND --help\` has examples.`,
    ...pages,
    "## Flags of llama-server",
    `\`lantern serve\` knows all flags of llama-server: those of other names, those that change nothing here (accepted, with a line that says why), and those that are refused.`,
    llamaServerTable(),
    "## Flags of several commands",
    ["| flag | |", "|---|---|", ...shared.sort((a, b) => (a < b ? -1 : 1))].join("\n"),
  ].join("\n\n")}\n`;
}

function optionRow([name, option]: [string, OptionRow]): string {
  const flag = option.flag === undefined ? "" : code(option.flag);
  const field = option.field ?? "";
  const ollama = option.ollama ?? field;
  const usual =
    option.type === "number"
      ? (option.default ?? option.none ?? "")
      : option.default === undefined
        ? ""
        : JSON.stringify(option.default);
  const fields = [field, ...(ollama === field ? [] : [`${ollama} (Ollama)`])].filter(Boolean);
  return row(
    code(name),
    flag,
    fields.map(code).join(", "),
    cell(rangesOf(option)),
    cell(String(usual)),
    cell(option.help),
  );
}

/** The range, and those of requests where they are narrower. */
function rangesOf(option: OptionRow): string {
  if (option.type !== "number") return expectedOf(option);
  const { requests, anthropic, note } = option;
  const narrower = [
    ...(requests ? [`requests: ${rangeText(fieldRange(option))}`] : []),
    ...(anthropic ? [`Anthropic's: ${rangeText(anthropic)}`] : []),
  ];
  const said = [rangeText(flagRange(option)), ...narrower].join("; ");
  return note === undefined ? said : `${said} (${note})`;
}

/** docs/reference/options.md */
export function optionsReference(): string {
  const head = [
    row("option", "flag", "field", "value", "default", "what it does"),
    "|---|---|---|---|---|---|",
  ];
  const table = (rows: Readonly<Record<string, OptionRow>>): string =>
    [...head, ...Object.entries(rows).map(optionRow)].join("\n");
  return `${[
    "# Options of a generation",
    `${generated} An option has its name in the API ([\`generate()\`](../library/api.md)) and in the settings of a conversation, its flag, and its field in requests of OpenAI's, llama.cpp's and Ollama's protocols; Anthropic's requests have those with a range of theirs.`,
    "## Sampling",
    table(samplingRows),
    "## The rest",
    table(generationRows),
  ].join("\n\n")}\n`;
}

export const references: Readonly<Record<string, () => Promise<string> | string>> = {
  "docs/reference/cli.md": cliReference,
  "docs/reference/options.md": optionsReference,
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = new URL("../", import.meta.url);
  mkdirSync(new URL("docs/reference/", root), { recursive: true });
  for (const [path, text] of Object.entries(references)) {
    writeFileSync(new URL(path, root), await text());
  }
}
