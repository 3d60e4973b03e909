// llama.cpp's own endpoints beside OpenAI's: text to tokens and back, the state of the server, and /completion
// (llamacpp-completion.ts).

import * as z from "zod";
import type { Model } from "../../index.ts";
import { noRules, readFields } from "../body.ts";
import type { ServedModel } from "../context.ts";
import { openaiErrors } from "../errors.ts";
import { publicInfo } from "../library.ts";
import { chatText } from "../prompt.ts";
import { type Call, json, type RouteFamily } from "../route.ts";
import { completion } from "./llamacpp-completion.ts";

const ids = z.array(z.int().nonnegative());

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
  const tokens = await model.tokenize(fields.content, {
    addBos: fields.add_special ?? false,
    parseSpecial: fields.parse_special ?? true,
  });
  if (!fields.with_pieces) return json({ tokens });
  const pieces = await piecesOf(model, tokens);
  return json({ tokens: tokens.map((id, at) => ({ id, piece: pieces[at] })) });
}

/** What each token stands for inside a text: at its beginning, tokenizers drop a space. */
async function piecesOf(model: Model, tokens: readonly number[]): Promise<string[]> {
  const before = await model.tokenize(".", { addBos: false });
  const [start, ...both] = await Promise.all(
    [[], ...tokens.map((id) => [id])].map((ids) =>
      model.detokenize([...before, ...ids], { special: true }),
    ),
  );
  return both.map((text) => text.slice(start!.length));
}

const detokenizeFields = z.object({ model: z.string().optional(), tokens: ids });

async function detokenize(call: Call): Promise<Response> {
  const fields = await readFields(call, detokenizeFields, noRules);
  const { model } = call.server.models.find(fields.model);
  return json({ content: await model.detokenize(fields.tokens) });
}

const templateFields = z.object({
  model: z.string().optional(),
  messages: z
    .array(
      z.strictObject({
        role: z.enum(["system", "user", "assistant", "tool"]),
        content: z.string(),
      }),
    )
    .min(1),
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
