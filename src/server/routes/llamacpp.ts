// llama.cpp's own endpoints beside OpenAI's: text to tokens and back, the state of the server, and /completion
// (llamacpp-completion.ts).

import * as z from "zod";
import { ContextError, type Model, type TokenizeOptions } from "../../index.ts";
import { noRules, readFields } from "../body.ts";
import type { ServedModel } from "../context.ts";
import { invalidRequest, openaiErrors } from "../errors.ts";
import { listOf, maxIds, mostMessages, tokenIds } from "../inputs.ts";
import { publicInfo } from "../library.ts";
import { chatText } from "../prompt.ts";
import { type Call, json, jsonList, type RouteFamily } from "../route.ts";
import { completion } from "./llamacpp-completion.ts";

const tokenizeFields = z.object({
  model: z.string().optional(),
  content: z.string(),
  add_special: z.boolean().optional(),
  parse_special: z.boolean().optional(),
  with_pieces: z.boolean().optional(),
});

async function tokenize(call: Call): Promise<Response> {
  const fields = await readFields(call, tokenizeFields, noRules);
  const { model } = call.server.models.find(fields.model);
  const tokens = await tokensOf(model, fields.content, {
    addBos: fields.add_special ?? false,
    parseSpecial: fields.parse_special ?? true,
    maxTokens: maxIds,
  });
  if (!fields.with_pieces) return jsonList("tokens", tokens, String);
  const pieces = await piecesOf(model, tokens);
  return jsonList("tokens", tokens, (id) => `{"id":${id},"piece":${pieces.get(id)}}`);
}

async function tokensOf(model: Model, text: string, options: TokenizeOptions): Promise<number[]> {
  try {
    return await model.tokenize(text, options);
  } catch (error) {
    if (!(error instanceof ContextError)) throw error;
    throw invalidRequest(
      `"content": it has ${error.tokens} tokens or more, and at most ${maxIds} are listed at once. Send it in pieces`,
      "content",
      "too_many_tokens",
    );
  }
}

/** As JSON, what each token stands for: a text, or its bytes where they are only a part of a character. */
async function piecesOf(model: Model, tokens: readonly number[]): Promise<Map<number, string>> {
  const seen = new Uint8Array(model.info.vocabSize);
  for (const id of tokens) seen[id] = 1;
  const distinct = Array.from(seen.keys()).filter((id) => seen[id] === 1);
  const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const pieces = new Map<number, string>();
  const slice = 16_384;
  for (let from = 0; from < distinct.length; from += slice) {
    const ids = distinct.slice(from, from + slice);
    const all = await model.tokenPieces(ids);
    ids.forEach((id, at) => {
      pieces.set(id, JSON.stringify(textOrBytes(all[at]!, utf8)));
    });
  }
  return pieces;
}

function textOrBytes(bytes: Uint8Array, utf8: TextDecoder): string | number[] {
  try {
    return utf8.decode(bytes);
  } catch {
    return [...bytes];
  }
}

const detokenizeFields = z.object({ model: z.string().optional(), tokens: tokenIds });

async function detokenize(call: Call): Promise<Response> {
  const fields = await readFields(call, detokenizeFields, noRules);
  const { model } = call.server.models.find(fields.model);
  return json({ content: await model.detokenize(fields.tokens) });
}

const templateFields = z.object({
  model: z.string().optional(),
  messages: listOf(
    z.strictObject({
      role: z.enum(["system", "user", "assistant", "tool"]),
      content: z.string(),
    }),
    mostMessages,
  ),
});

async function applyTemplate(call: Call): Promise<Response> {
  const fields = await readFields(call, templateFields, noRules);
  const served = call.server.models.find(fields.model);
  return json({ prompt: await chatText(served, fields.messages) });
}

function props({ server }: Call): Response {
  const served = server.models.find(undefined);
  const { info } = served.model;
  return json({
    default_generation_settings: { n_ctx: info.contextSize, params: server.settings.sampling },
    total_slots: server.settings.parallel,
    model_alias: served.id,
    modalities: { vision: false, audio: false },
    chat_template_available: info.hasChatTemplate,
    backend: publicInfo(info).backend,
    build_info: `lantern ${server.settings.version}`,
  });
}

function slots({ server }: Call): Response {
  const busy = [...server.jobs];
  const contextOf = (model: string): number | undefined =>
    server.models.list().find(({ id }) => id === model)?.model.info.contextSize;
  const list = Array.from({ length: Math.max(server.settings.parallel, busy.length) }, (_, id) => {
    const job = busy[id];
    if (!job) return { id, is_processing: false };
    return {
      id,
      is_processing: true,
      id_task: job.id,
      model: job.model,
      route: job.route,
      n_ctx: contextOf(job.model),
      n_prompt_tokens: job.promptTokens,
      n_decoded: job.generatedTokens,
    };
  });
  return json(list);
}

function health({ server }: Call): Response {
  const models: readonly ServedModel[] = server.models.list();
  return models.length > 0
    ? json({ status: "ok" })
    : json({ error: { code: 503, message: "no model is loaded", type: "unavailable_error" } }, 503);
}

export const llamacppRoutes: RouteFamily = {
  name: "llamacpp",
  errors: openaiErrors,
  routes: [
    { method: "GET", path: "/health", open: true, handle: health },
    { method: "GET", path: "/v1/health", open: true, handle: health },
    { method: "GET", path: "/props", handle: props },
    { method: "GET", path: "/slots", handle: slots },
    { method: "POST", path: "/completion", handle: completion },
    { method: "POST", path: "/completions", handle: completion },
    { method: "POST", path: "/tokenize", handle: tokenize },
    { method: "POST", path: "/detokenize", handle: detokenize },
    { method: "POST", path: "/apply-template", handle: applyTemplate },
  ],
};
