// OpenAI's POST /v1/embeddings: vectors as numbers, or as base64 of their float32 bytes (which OpenAI's client
// requests). And llama.cpp's /embedding, which gives a list of vectors for each input.

import * as z from "zod";
import type { Embedding, Pooling } from "../../../../src/index.ts";
import { type FieldRules, readFields } from "../../body.ts";
import { embedInputs, poolingOf, tokensOf } from "../../embed.ts";
import { invalidRequest, openaiErrors, unsupportedField } from "../../errors.ts";
import { inputList, promptInput } from "../../inputs.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";

const embeddingFields = z.object({
  model: z.string().optional(),
  input: promptInput.optional(),
  /** llama.cpp's name; its answer is llama.cpp's list. */
  content: promptInput.optional(),
  encoding_format: z.enum(["float", "base64"]).optional(),
  dimensions: z.int().min(1).optional(),
  pooling: z.enum(["none", "mean", "cls", "last", "rank"]).optional(),
  embd_normalize: z.int().min(-1).optional(),
  input_type: z.enum(["query", "passage"]).optional(),
});

const rules: FieldRules = { accepted: ["user"], refused: {} };

const handler =
  (isOpenai: boolean) =>
  async (call: Call): Promise<Response> => {
    const fields = await readFields(call, embeddingFields, rules);
    const input = fields.input ?? fields.content;
    if (input === undefined) {
      throw invalidRequest('"input": expected a text, token ids, or a list of either', "input");
    }
    const served = await call.server.models.obtain(fields.model);
    const pooling = fields.pooling ?? poolingOf(call, served);
    const asOpenai = isOpenai && fields.input !== undefined;
    checkShape(asOpenai, pooling, fields.encoding_format);
    // llama.cpp does not scale the vectors of tokens.
    const norm = pooling === "none" ? -1 : undefined;
    const found = await embedInputs(call, served, inputList(input), {
      pooling,
      normalize: fields.embd_normalize ?? norm,
      dimensions: fields.dimensions,
      as: fields.input_type,
    });
    if (!asOpenai)
      return json(found.map((one, index) => ({ index, embedding: rowsOf(one, pooling) })));
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
  };

function checkShape(
  asOpenai: boolean,
  pooling: Pooling | undefined,
  encoding: "float" | "base64" | undefined,
): void {
  if (asOpenai && pooling === "none") {
    throw invalidRequest(
      '"pooling": got "none", which gives a vector for each token: OpenAI\'s format has one for each input. Choose mean, cls or last, or use /embedding',
      "pooling",
    );
  }
  if (!asOpenai && encoding === "base64") {
    throw unsupportedField("encoding_format", "llama.cpp's format has numbers. Use /v1/embeddings");
  }
}

/** One vector, or one for each token. */
function rowsOf({ vector, tokens }: Embedding, pooling: Pooling | undefined): number[][] {
  if (pooling !== "none") return [[...vector]];
  const size = vector.length / tokens;
  return Array.from({ length: tokens }, (_, at) => [
    ...vector.subarray(at * size, (at + 1) * size),
  ]);
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
    { method: "POST", path: "/v1/embeddings", access: "use", handle: handler(true) },
    { method: "POST", path: "/embeddings", access: "use", handle: handler(false) },
    { method: "POST", path: "/embedding", access: "use", handle: handler(false) },
  ],
};
