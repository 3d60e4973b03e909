// OpenAI's POST /v1/embeddings: vectors as numbers, or as base64 of their float32 bytes (which OpenAI's client
// requests).

import * as z from "zod";
import { type FieldRules, readFields } from "../body.ts";
import { embedInputs, tokensOf } from "../embed.ts";
import { invalidRequest, openaiErrors, unsupportedField } from "../errors.ts";
import { inputList, promptInput } from "../inputs.ts";
import { type Call, json, type RouteFamily } from "../route.ts";

const embeddingFields = z.object({
  model: z.string().optional(),
  input: promptInput,
  encoding_format: z.enum(["float", "base64"]).optional(),
  dimensions: z.int().min(1).optional(),
  pooling: z.enum(["mean", "last"]).optional(),
});

const rules: FieldRules = { accepted: ["user"], refused: {} };

async function embeddings(call: Call): Promise<Response> {
  const fields = await readFields(call, embeddingFields, rules);
  const served = call.server.models.find(fields.model);
  const found = await embedInputs(call, served, inputList(fields.input), fields.pooling);
  const size = found[0]!.vector.length;
  if (fields.dimensions !== undefined && fields.dimensions !== size) {
    throw unsupportedField("dimensions", `this model's vectors have ${size} values`);
  }
  const encode = fields.encoding_format === "base64" ? toBase64 : (v: Float32Array) => [...v];
  const tokens = tokensOf(found);
  return json({
    object: "list",
    data: found.map(({ vector }, index) => ({
      object: "embedding",
      index,
      embedding: encode(vector),
    })),
    model: served.id,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  });
}

const llamacppFields = embeddingFields.partial({ input: true }).extend({
  content: promptInput.optional(),
});

/** llama.cpp's POST /embeddings: a plain list, each entry with its vectors. */
async function llamacppEmbeddings(call: Call): Promise<Response> {
  const fields = await readFields(call, llamacppFields, rules);
  const input = fields.input ?? fields.content;
  if (input === undefined) throw invalidRequest('"input": expected a text or token ids', "input");
  const served = call.server.models.find(fields.model);
  const found = await embedInputs(call, served, inputList(input), fields.pooling);
  return json(found.map(({ vector }, index) => ({ index, embedding: [[...vector]] })));
}

/** The bytes of the floats, little-endian. */
function toBase64(vector: Float32Array): string {
  const bytes = new DataView(new ArrayBuffer(vector.length * 4));
  vector.forEach((value, i) => {
    bytes.setFloat32(i * 4, value, true);
  });
  let binary = "";
  for (const byte of new Uint8Array(bytes.buffer)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

export const openaiEmbeddingRoutes: RouteFamily = {
  name: "openai-embeddings",
  errors: openaiErrors,
  routes: [
    { method: "POST", path: "/v1/embeddings", access: "use", handle: embeddings },
    { method: "POST", path: "/embeddings", access: "use", handle: llamacppEmbeddings },
    { method: "POST", path: "/embedding", access: "use", handle: llamacppEmbeddings },
  ],
};
