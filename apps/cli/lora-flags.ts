// Flags for LoRA adapters, with llama.cpp's names. Adapters are numbered in the order of the flags, from 0.

import { type Command, InvalidArgumentError, Option } from "commander";
import type { AdapterFile, OpenOptions } from "../../src/index.ts";

export interface LoraFlags {
  lora?: AdapterFile[];
  loraScaled?: AdapterFile[];
  loraInitWithoutApply?: boolean;
}

/** --lora, --lora-scaled, --lora-init-without-apply */
export function addLoraFlags(command: Command): Command {
  // Both flags add to one list, so that numbers follow the order in which they are given.
  const all: AdapterFile[] = [];
  return command
    .addOption(
      new Option(
        "--lora <file>",
        "apply a LoRA adapter (GGUF); several with commas, or by repeating the flag",
      ).argParser((text: string) => {
        for (const location of text.split(",")) all.push({ location: named(location) });
        return all;
      }),
    )
    .addOption(
      new Option(
        "--lora-scaled <file:scale>",
        "the same with a factor: adapter.gguf:0.5; several with commas, or by repeating the flag",
      ).argParser((text: string) => {
        for (const part of text.split(",")) all.push(scaled(part));
        return all;
      }),
    )
    .addOption(
      new Option(
        "--lora-init-without-apply",
        "load adapters, but apply them only to requests that ask for it (lora, POST /lora-adapters)",
      ),
    );
}

function named(location: string): string {
  if (location.trim() !== "") return location;
  throw new InvalidArgumentError("got no name, expected the file of an adapter");
}

/** A path may have colons of its own. */
function scaled(text: string): AdapterFile {
  const at = text.lastIndexOf(":");
  const scale = at < 0 ? Number.NaN : Number(text.slice(at + 1) || Number.NaN);
  if (Number.isFinite(scale)) return { location: named(text.slice(0, at)), scale };
  throw new InvalidArgumentError(`got "${text}", expected FILE:SCALE, as in adapter.gguf:0.5`);
}

export function adapterOptions(flags: LoraFlags): Pick<OpenOptions, "adapters"> {
  const adapters = flags.lora ?? flags.loraScaled;
  if (!adapters) return {};
  const { loraInitWithoutApply = false } = flags;
  return {
    adapters: loraInitWithoutApply ? adapters.map((one) => ({ ...one, scale: 0 })) : adapters,
  };
}
