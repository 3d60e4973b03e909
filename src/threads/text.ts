// Entry of the text thread, and its composition root: opens the model's file for its tokenizer and chat template, and
// hands them to the host (engine/text-host.ts). It reads no weights.

import type { TextRequest } from "../engine/protocol.ts";
import { serveText } from "../engine/text-host.ts";
import type { TextSide } from "../engine/text-work.ts";
import { openModelFile } from "../formats/open-model-file.ts";
import { withOverrides } from "../formats/overridden.ts";
import { templateOf, tokenizerOf } from "../load/compose.ts";
import { currentPlatform } from "../platform/current.ts";

const platform = await currentPlatform();
serveText(platform.enginePort(), load);

async function load({ spec, chatTemplate, overrideKv }: TextRequest): Promise<TextSide> {
  const source = await platform.openModelSource(spec);
  const file = withOverrides(await openModelFile(source), overrideKv);
  try {
    const tokenizer = tokenizerOf(file);
    const template = templateOf(chatTemplate, file.metadata, tokenizer);
    return { name: file.metadata.string("general.name") ?? file.name, tokenizer, template };
  } finally {
    await file.close();
  }
}
