// The sentences of `--help`: a flag that several commands have is described alike in all of them.
// Held against: the sentences of the other commands.

import { Command } from "commander";
import { expect, test } from "vitest";
import type { CliContext } from "../../apps/cli/command.ts";
import { commands } from "../../apps/cli/commands/table.ts";

/** Flags that mean something else in some commands, and say so. */
const ownMeaning = [
  "--alias", // of one model, or of several
  "--api-key", // the key that is asked for, or sent
  "--backend", // tune takes several
  "--ctx-size", // the size of a window where a text is measured
  "--file", // the prompt, the text, or where times are written
  "--force",
  "--json", // what is printed besides one object
  "--layers", // how many a model has
  "--list",
  "--measure",
  "--model", // tune measures its shapes
  "--no-native",
  "--no-warmup", // bench computes a prompt of its own first
  "--output", // a matrix, or answers
  "--parallel", // requests, or windows
  "--predict",
  "--profile", // a server writes no trace
  "--prompt", // a text, a message, or a length
  "--repetitions",
  "--dry-run", // what would be changed, or which files
  "--device", // whose limits, or where a server computes
  "--embd-normalize", // of these texts, or of requests without one
  "--threads", // of a device, or several counts
  "--tokens",
  "--type",
  "--url", // of a server that is running, or one to measure
  "--users", // one number, or several
  "--yes",
  "--weights", // bits to compute with, or how a model is held
];

/** Each flag's sentences without their defaults, by its long name. */
async function sentences(): Promise<Map<string, Set<string>>> {
  const found = new Map<string, Set<string>>();
  const take = (command: Command): void => {
    for (const { long, description, hidden } of command.options) {
      if (hidden) continue; // llama-server's that change nothing: their description is the reason
      const known = found.get(long!) ?? new Set();
      found.set(long!, known.add(description.replace(/ \(default: [^)]*\)$/, "")));
    }
    command.commands.forEach(take);
  };
  for (const { name, body } of commands) {
    const command = new Command(name);
    (await body()).define(command, {} as CliContext);
    take(command);
  }
  return found;
}

test("a flag has the same sentence in all commands, unless it means something else", async () => {
  const several = [...(await sentences())]
    .filter(([, texts]) => texts.size > 1)
    .map(([name]) => name);
  expect(several.filter((name) => !ownMeaning.includes(name))).toEqual([]);
});

test("a flag's sentence begins with a small letter or a name, and has no full stop", async () => {
  for (const [name, texts] of await sentences()) {
    for (const text of texts) expect(text, name).toMatch(/^(?:[a-z]|[A-Z]{2}).*[^.]$/s);
  }
});

test("the list of commands shows of each the arguments that the command has", async () => {
  for (const { name, args = "", body } of commands) {
    const command = new Command(name);
    (await body()).define(command, {} as CliContext);
    const shown = command.registeredArguments.map((argument) => {
      const text = argument.name() + (argument.variadic ? "..." : "");
      return argument.required ? `<${text}>` : `[${text}]`;
    });
    expect(args, name).toBe(shown.join(" "));
  }
});
