// llama-server's flags that change nothing here, and those that are refused, for `lantern serve`: they are parsed, but not listed in its
// help. A line says why (llama-server-flags.ts).

import { type Command, Option } from "commander";
import type { CliContext } from "./command.ts";
import { chiefName } from "./flag-names.ts";
import { llamaServerFlags } from "./llama-server-flags.ts";

export function addHiddenFlags(command: Command, context: CliContext): Command {
  for (const { names, value, note, refused, usual } of llamaServerFlags) {
    const why = note ?? refused;
    if (why === undefined) continue;
    const name = chiefName(names);
    const option = new Option(value === undefined ? name : `${name} ${value}`, why).hideHelp();
    command.addOption(option);
    command.on(`option:${option.name()}`, (given: string | null) => {
      if (usual?.test(given ?? "")) return;
      if (refused !== undefined) command.error(`error: ${name}: ${refused}`);
      context.log.info(`${name} changes nothing: ${why}.\n`);
    });
  }
  return command;
}
