// lantern models: the models that can be named, and which of them are on this machine.

import { diskUse, listModels, type ModelListing } from "../../catalog/list.ts";
import type { CliCommand, CliContext } from "../command.ts";
import { bytesText, tableText } from "../text.ts";

interface ModelsFlags {
  json?: boolean;
}

export const modelsCommand: CliCommand = {
  name: "models",
  summary: "list the models that can be named, and those on this machine",
  examples: ["lantern models", "lantern models --json"],
  define(command, context) {
    command
      .option("--json", "print one JSON array")
      .action((flags: ModelsFlags) => models(flags, context));
  },
};

const stateTexts: Record<ModelListing["state"], string> = {
  installed: "installed",
  cached: "in the cache",
  partial: "begun",
  linked: "elsewhere",
  absent: "-",
};

async function models(flags: ModelsFlags, context: CliContext): Promise<void> {
  const { terminal, downloads } = context;
  const listings = await listModels(downloads);
  if (flags.json) {
    terminal.out(`${JSON.stringify(listings)}\n`);
    return;
  }
  const rows = listings.map((model) => {
    const size = model.sha256 || model.path ? bytesText(model.bytes) : `~${bytesText(model.bytes)}`;
    return [model.name, size, stateTexts[model.state], model.licence, model.description];
  });
  const header = ["NAME", "SIZE", "HERE", "LICENCE", "WHAT IT IS"];
  terminal.out(tableText([header, ...rows], [1]));
  const { out } = context.color();
  const hint = `Get one with "lantern pull NAME", or any other of the Hugging Face hub with "lantern pull owner/repo".`;
  const used = bytesText(diskUse(listings));
  const free = await downloads.freeBytes(downloads.cacheFolder);
  const room = free === undefined ? "" : `, ${bytesText(free)} free`;
  terminal.out(
    `\n${out.dim(`${hint}\nKept in ${downloads.cacheFolder}: ${used}${room}. "lantern rm NAME" deletes one.`)}\n`,
  );
}
