// The sentences that several commands have in their help: a flag that means the same is described alike everywhere.
// A flag that means something else in one command has its sentence there.

export const noColorHelp = "no colours (also: NO_COLOR=1)";
export const jsonHelp = "print one JSON object";
export const forceHelp = "replace the output if it exists";
export const threadsHelp = "compute threads (default: all cores)";
export const textFileHelp = "read the text from a file; -: from standard input";
export const separatorHelp = "what is between the texts of a file";
export const windowHelp =
  "size of a window, in tokens (default: 512, or the model's context if that is smaller)";
export const windowsHelp = "use at most this many windows of the text (default: all)";
export const noBosHelp = "do not put the begin-of-text token first";
export const backendHelp =
  'backend: cpu, webgpu (a GPU; see "lantern devices") or reference (default: cpu)';

/** The names of the built-in chat templates, as a list that a sentence can end with. */
export const templateHelp = "chat template: chatml, llama2, llama3, zephyr, command-r";

export const effortHelp =
  "how much the model reasons, if its template knows efforts: minimal, low, medium, high; none: not at all, default: as the template does";

/** -m, with the model that is used where it is not given. */
export function modelHelp(modelDefault?: string): string {
  const shown = modelDefault ? ` (default: ${modelDefault})` : "";
  return `a GGUF file, a Hugging Face folder, a llama2.c checkpoint, a name from "lantern models", or hf:owner/repo for the Hugging Face hub${shown}`;
}

/** --level, with what is used where it is not given. */
export function levelHelp(levelDefault?: string): string {
  const shown = levelDefault ? ` (default: ${levelDefault})` : "";
  return `opt level; 1: plain TypeScript, 2: SIMD row by row, 3: SIMD with register tiles, 4: machine code with register tiles${shown}`;
}

export const bestLevel = "4 where this machine can run it, else 3";

export const mtpHelp =
  "let the layer of the file that predicts further tokens draft: the same text, sooner (docs/speculation.md)";

export const plotHelp = "also write a chart";

export const ramHelp =
  "the most memory that the model may take, as in 4G; weights beyond that are read from disk for every batch (docs/memory.md)";
