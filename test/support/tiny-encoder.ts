// A tiny random encoder with a classifier, as a file: it embeds and ranks, and generates nothing.

import { type TinyFileOptions, tinyFile } from "./tiny-file.ts";

export async function tinyEncoder(
  options: TinyFileOptions = {},
): Promise<{ path: string; remove(): void }> {
  return await tinyFile({ architecture: "bert", noTemplate: true, name: "ranker", ...options });
}
