// Help sentences that several commands share: a flag with one meaning is described alike everywhere. A flag with
// another meaning in one command has its sentence there.

import { openRows, openTable } from "../../src/options/open.ts";
import { helpOf } from "../../src/options/row.ts";

export const jsonHelp = "print one JSON object";
export const forceHelp = "replace the output if it exists";
export const threadsHelp: string = helpOf(openRows.threads);
export const textFileHelp = "read the text from a file; -: from standard input";
export const separatorHelp = "what is between the texts of a file";
export const windowHelp =
  "size of a window, in tokens (default: 512, or the model's context if that is smaller)";
export const windowsHelp = "use at most this many windows of the text (default: all)";
export const noBosHelp = "do not put the begin-of-text token first";

/** The names of the built-in chat templates, as a list that a sentence can end with. */
export const templateHelp = "chat template: chatml, llama2, llama3, zephyr, command-r";

export const effortHelp =
  "how much the model reasons, if its template knows efforts: minimal, low, medium, high; none: not at all, default: as the template does";

/** -m, with its default model. */
export function modelHelp(modelDefault?: string): string {
  const shown = modelDefault ? ` (default: ${modelDefault})` : "";
  return `a GGUF file, a Hugging Face folder, a llama2.c checkpoint, a name from "lantern models", or hf:owner/repo for the Hugging Face hub${shown}`;
}

/** --level, with what is used where it is not given. */
export function levelHelp(usual: string): string {
  return `${openTable.level.help} (default: ${usual})`;
}

export const bestLevel: string = openTable.level.usual;

export const plotHelp = "also write a chart";
