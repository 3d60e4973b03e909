// lantern launch: starts a coding agent or another client with a model of this machine. Flags are here, the work is in launch/.

import type { Command } from "commander";
import { UsageError } from "../../../src/index.ts";
import type { CommandBody } from "../command.ts";
import { numberFlag } from "../flag-values.ts";
import type { LaunchFlags } from "../launch/launch.ts";

interface Flags extends LaunchFlags {
  readonly list?: boolean;
  readonly undo?: boolean;
}

export const launchCommand: CommandBody = {
  examples: [
    "lantern launch --list",
    "lantern launch claude --dry-run",
    "lantern launch codex qwen3-8b",
    'lantern launch claude qwen3-8b -- -p "What does this project do?"',
    "lantern launch pi --undo",
  ],
  define(command, context) {
    command
      .argument("[client]", "the program to start, as in --list")
      .argument(
        "[model]",
        "a model of a running server, or of this machine (default: the best that knows tools and fits; on a terminal you choose)",
      )
      .argument("[args...]", "after --: arguments for the program")
      .option("--list", "list the clients, and which are installed")
      .option("--dry-run", "print what would be done, and do nothing")
      .option("--undo", "put the client's configuration back as it was before the first launch")
      .option("-y, --yes", "change the client's configuration without asking")
      .option(
        "-c, --ctx-size <n>",
        "context of the server that is started, in tokens (default: what the client needs, as far as it fits in memory)",
        numberFlag({ integer: true, min: 1, max: 16_777_216 }),
      )
      .option(
        "--url <address>",
        "use the server at this address (default: one that runs on this machine)",
      )
      .option("--json", "with --list or --dry-run: print JSON")
      .action(
        async (_client: unknown, _model: unknown, _args: unknown, flags: Flags, self: Command) => {
          const [name, model, ...more] = ownArgs(self);
          if (more.length > 0) {
            throw new UsageError(
              `launch: got ${JSON.stringify(more[0])} after the model, expected "--" before arguments for the program`,
            );
          }
          const { clientNamed, launch, listClients, undoLaunch } = await import(
            "../launch/launch.ts"
          );
          if (flags.list || (name === undefined && !flags.undo)) {
            listClients(flags, context);
            return;
          }
          if (name === undefined) {
            throw new UsageError(
              "launch: got --undo alone, expected a client: lantern launch pi --undo",
            );
          }
          const client = clientNamed(name);
          if (flags.undo) await undoLaunch(client, flags, context);
          else await launch(client, model, argsAfter(self), flags, context);
        },
      );
  },
};

/** What was typed after "--". Commander counts it among the arguments. */
function argsAfter(self: Command): readonly string[] {
  const { rawArgs } = self.parent as unknown as { rawArgs: readonly string[] };
  const end = rawArgs.indexOf("--");
  return end < 0 ? [] : rawArgs.slice(end + 1);
}

function ownArgs(self: Command): readonly string[] {
  return self.args.slice(0, self.args.length - argsAfter(self).length);
}
