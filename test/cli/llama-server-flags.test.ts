// Every flag of llama-server is one of `lantern serve`: honoured, or accepted with a reason, or refused with a reason, and never unknown.
// Held against: llama-server's own list (llama-server-flags.ts).

import { Command, CommanderError } from "commander";
import { expect, test } from "vitest";
import type { CliContext } from "../../apps/cli/command.ts";
import { serveCommand } from "../../apps/cli/commands/serve.ts";
import { commands } from "../../apps/cli/commands/table.ts";
import { chiefName, withOneName } from "../../apps/cli/flag-names.ts";
import { llamaServerFlags } from "../../apps/cli/llama-server-flags.ts";
import { llamaServerHelp } from "./llama-server-flags.ts";

const said: string[] = [];
const context = {
  log: { info: (text: string) => said.push(text) },
} as unknown as CliContext;

function serve(): Command {
  const command = new Command("serve").exitOverride().configureOutput({ writeErr: () => {} });
  serveCommand.define(command, context);
  return command;
}

interface Flag {
  names: readonly string[];
  /** "": none, "X": one, "[]": it may be left out, "2": two. */
  value: string;
}
const flags: Flag[] = llamaServerHelp.map((line) => {
  const words = line.split(" ");
  const value = words.at(-1)!.startsWith("-") ? "" : words.pop()!;
  return { names: words, value };
});
/** Those of every program; their last word ends the parsing. */
const ofAll = ["-h", "--help", "--usage"];
const rowOf = (name: string) =>
  llamaServerFlags.find((row) => row.names.split(" ").includes(name) && !row.ours && !row.stands);
const command = serve().action(() => {});
const inServe = (args: readonly string[]): string[] => withOneName(["serve", ...args]).slice(1);
const known = new Map(
  command.options.flatMap((option) =>
    [option.short, option.long].flatMap((name) => (name ? [[name, option] as const] : [])),
  ),
);

test("there is none that serve does not know", () => {
  expect(flags.length).toBeGreaterThan(240);
  const unknown = flags
    .flatMap(({ names }) => names)
    .filter(
      (name) =>
        !ofAll.includes(name) &&
        inServe([name]).some((one) => one.startsWith("-") && !known.has(one)),
    )
    .filter((name) => rowOf(name) === undefined || !known.has(chiefName(rowOf(name)!.names)));
  // Flags of the program, beside those of the command.
  expect(unknown.filter((name) => name !== "--log-disable")).toEqual([]);
});

test("a flag takes a value where llama-server's does", () => {
  const wrong = flags.flatMap(({ names, value }) =>
    names.flatMap((name) => {
      const words = inServe([name]);
      const option = words.length === 1 ? known.get(words[0]!) : undefined;
      if (!option || value === "2") return []; // refused, whatever follows
      const takes = option.required ? "X" : option.optional ? "[]" : "";
      // One that must have a value may leave out a choice, and the other way round.
      return takes === value || (takes !== "" && value !== "")
        ? []
        : [`${name}: ${takes}, not ${value}`];
    }),
  );
  expect(wrong).toEqual([]);
});

test("what changes nothing says so once, and what is refused says why and what to do", () => {
  for (const { names, value, note, refused, usual } of llamaServerFlags) {
    if (note === undefined && refused === undefined) continue;
    expect([note, refused].filter(Boolean)).toHaveLength(1);
    for (const name of names.split(" ")) {
      said.length = 0;
      const args = inServe(value === undefined ? [name] : [name, "7"]);
      const parse = () => command.parse(args, { from: "user" });
      if (refused === undefined) {
        parse();
        expect(said, name).toHaveLength(usual?.test("7") ? 0 : 1);
        if (said[0]) expect(said[0]).toMatch(/^--[\w-]+ changes nothing: .{10,}\.\n$/);
      } else {
        expect(parse, name).toThrow(CommanderError);
        expect(parse, name).toThrow(`${chiefName(names)}: ${refused}`);
      }
    }
  }
  expect(() => command.parse(["--adaptive-target", "-1"], { from: "user" })).not.toThrow();
});

test("every row is about a flag that llama-server has, or had", () => {
  const theirs = new Set(flags.flatMap(({ names }) => names));
  const rows = llamaServerFlags.flatMap(({ names }) => names.split(" "));
  expect(new Set(rows).size).toBe(rows.length);
  expect(rows.filter((name) => !theirs.has(name))).toEqual([]);
});

test("what stands for several flags stands for those that serve has", () => {
  for (const { names, stands } of llamaServerFlags) {
    if (!stands) continue;
    const ofServe = stands.filter((word) => word.startsWith("-") && word !== "--log-level");
    expect(
      ofServe.filter((word) => !known.has(word)),
      names,
    ).toEqual([]);
  }
});

test("no command has a flag of its own that is translated away", async () => {
  const translated = new Set(
    llamaServerFlags.flatMap(({ names }) =>
      names.split(" ").filter((name) => inServe([name])[0] !== name),
    ),
  );
  for (const { name, body } of commands) {
    const own = new Command(name);
    (await body()).define(own, context);
    const names = own.options.flatMap(({ short, long }) => [short, long]);
    expect(
      names.filter((one) => one && one !== "--draft" && translated.has(one)),
      name,
    ).toEqual([]);
  }
});
