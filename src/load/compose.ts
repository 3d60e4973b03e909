// The step that both composition roots share (open.ts on the caller's thread, threads/serve-engine.ts on the engine's):
// making the tokenizer and the chat template of a model file.

import { UsageError } from "../base/errors.ts";
import type { Metadata } from "../base/metadata.ts";
import { builtInTemplates, ChatTemplate } from "../chat/template.ts";
import type { ModelFile, TokenizerData } from "../formats/model-file.ts";
import { tokenizerFromJson } from "../tokenizers/from-json.ts";
import { tokenizerFromLlama2c } from "../tokenizers/from-llama2c.ts";
import { tokenizerFromMetadata } from "../tokenizers/from-metadata.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";

type Maker<K extends TokenizerData["kind"]> = (
  data: Extract<TokenizerData, { kind: K }>,
  file: ModelFile,
) => Tokenizer;

const tokenizerMakers: { readonly [K in TokenizerData["kind"]]: Maker<K> } = {
  gguf: (_, file) => tokenizerFromMetadata(file.metadata, tableRows(file)),
  json: ({ tokenizer, config }, file) =>
    tokenizerFromJson(tokenizer, config, file.metadata, tableRows(file)),
  llama2c: ({ bytes }, file) => tokenizerFromLlama2c(bytes, tableRows(file)!),
};

/** Rows of the embedding table, one per token; undefined in a vocabulary-only file. */
function tableRows(file: ModelFile): number | undefined {
  return file.tensors.get("token_embd.weight")?.shape[0];
}

export function tokenizerOf(file: ModelFile): Tokenizer {
  const make = tokenizerMakers[file.tokenizer.kind] as Maker<TokenizerData["kind"]>;
  return make(file.tokenizer, file);
}

/** The requested template (by name or source), or else the model's own, if it has one. */
export function templateOf(
  asked: string | undefined,
  metadata: Metadata,
  tokenizer: Tokenizer,
): ChatTemplate | undefined {
  const source = asked === undefined ? metadata.string("tokenizer.chat_template") : named(asked);
  if (source === undefined) return undefined;
  const { bos, eos } = tokenizer.special;
  const text = (id: number | undefined) => (id === undefined ? "" : tokenizer.tokenText(id));
  return new ChatTemplate(source, { bos: text(bos), eos: text(eos) });
}

function named(asked: string): string {
  const builtIn = builtInTemplates[asked];
  if (builtIn !== undefined) return builtIn;
  // A text of several words is a template without variables.
  if (/\{[%{]|\S\s+\S/.test(asked)) return asked;
  throw new UsageError(
    `chatTemplate: got "${asked}", expected a Jinja template or one of ${Object.keys(builtInTemplates).join(", ")}`,
  );
}
