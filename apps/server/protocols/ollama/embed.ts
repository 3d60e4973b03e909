// Ollama's POST /api/embed, and the older /api/embeddings.

import * as z from "zod";
import type { Pooling } from "../../../../src/index.ts";
import { type FieldRules, readFields } from "../../body.ts";
import type { ServedModel } from "../../context.ts";
import { embedInputs, poolingOf, tokensOf } from "../../embed.ts";
import { textInput } from "../../inputs.ts";
import { type Call, json } from "../../route.ts";
import { keepAliveField, servedAs } from "./models.ts";

const rules: FieldRules = {
  // `truncate` asks to cut long texts: they are refused instead, with the numbers.
  accepted: ["truncate", "options"],
  refused: {},
};

const embedFields = z.object({
  model: z.string(),
  input: textInput,
  dimensions: z.int().min(1).optional(),
  keep_alive: keepAliveField.optional(),
});

export async function embed(call: Call): Promise<Response> {
  const { server } = call;
  const started = server.now();
  const fields = await readFields(call, embedFields, rules);
  const served = await servedAs(call, fields.model, fields.keep_alive);
  const inputs = typeof fields.input === "string" ? [fields.input] : fields.input;
  const found = await embedInputs(call, served, inputs, {
    pooling: pooledOf(call, served),
    dimensions: fields.dimensions,
  });
  return json({
    model: served.id,
    embeddings: found.map(({ vector }) => [...vector]),
    total_duration: Math.round((server.now() - started) * 1e6),
    load_duration: 0,
    prompt_eval_count: tokensOf(found),
  });
}

/** Ollama's format has one vector for each text. */
function pooledOf(call: Call, served: ServedModel): Pooling | undefined {
  const pooling = poolingOf(call, served);
  return pooling === "none" ? "mean" : pooling;
}

const oldFields = z.object({
  model: z.string(),
  prompt: z.string(),
  keep_alive: keepAliveField.optional(),
});

export async function embedOld(call: Call): Promise<Response> {
  const fields = await readFields(call, oldFields, rules);
  const served = await servedAs(call, fields.model, fields.keep_alive);
  const [found] = await embedInputs(call, served, [fields.prompt], {
    pooling: pooledOf(call, served),
  });
  return json({ embedding: [...found!.vector] });
}
