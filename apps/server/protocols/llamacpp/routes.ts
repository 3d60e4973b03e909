// llama.cpp's own endpoints besides OpenAI's: tokenizing and detokenizing, the state of the server, and /completion
// (completion.ts).

import * as z from "zod";
import { ContextError, type Model, type TokenizeOptions } from "../../../../src/index.ts";
import { noRules, readFields } from "../../body.ts";
import { promptOptions, templateShape, toMessages } from "../../chat-fields.ts";
import type { ServerContext } from "../../context.ts";
import { invalidRequest, notSupported, openaiErrors } from "../../errors.ts";
import { generationParams } from "../../generation-settings.ts";
import { maxIds, type Piece, pieceInput, tokenIds } from "../../inputs.ts";
import { fingerprintOf } from "../../llamacpp-fields.ts";
import { publicInfo } from "../../models/library.ts";
import { chatRules } from "../../openai-fields.ts";
import { chatText, withSystem } from "../../prompt.ts";
import { type Call, json, jsonList, type RouteFamily } from "../../route.ts";
import { samplingOf } from "../../sampling-fields.ts";
import { listAdapters, setAdapters } from "./adapters.ts";
import { completion, infill } from "./completion.ts";
import { listSlots, slotAction } from "./slots.ts";

const tokenizeFields = z.object({
  model: z.string().optional(),
  content: pieceInput,
  add_special: z.boolean().optional(),
  parse_special: z.boolean().optional(),
  with_pieces: z.boolean().optional(),
});

async function tokenize(call: Call): Promise<Response> {
  const fields = await readFields(call, tokenizeFields, noRules);
  const { model } = await call.server.models.obtain(fields.model);
  const { content } = fields;
  const tokens = await tokensOf(model, typeof content === "string" ? [content] : content, {
    addBos: fields.add_special ?? false,
    parseSpecial: fields.parse_special ?? true,
    maxTokens: maxIds,
  });
  if (!fields.with_pieces) return jsonList("tokens", tokens, String);
  const pieces = await piecesOf(model, tokens);
  return jsonList("tokens", tokens, (id) => `{"id":${id},"piece":${pieces.get(id)}}`);
}

/** Only a text at the start gets BOS. */
async function tokensOf(
  model: Model,
  pieces: readonly Piece[],
  options: TokenizeOptions,
): Promise<number[]> {
  const read = async (one: Piece, at: number): Promise<number[]> => {
    if (typeof one === "number") return [one];
    return await model.tokenize(one, { ...options, addBos: at === 0 && options.addBos === true });
  };
  try {
    return (await Promise.all(pieces.map(read))).flat();
  } catch (error) {
    if (!(error instanceof ContextError)) throw error;
    throw invalidRequest(
      `"content": it has ${error.tokens} tokens or more, expected at most ${maxIds}. Send it in pieces`,
      "content",
      "too_many_tokens",
    );
  }
}

/** The text of each token as JSON, or its bytes if they are only part of a character. */
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
  const { model } = await call.server.models.obtain(fields.model);
  return json({ content: await model.detokenize(fields.tokens) });
}

const templateFields = z.object({
  ...templateShape,
  model: z.string().optional(),
  tools: z.array(z.unknown()).optional(),
});

/**
 * The prompt of a chat, and its template marks: together they are a prompt for /completion. Tools are only passed to the template:
 * nothing is called.
 */
async function applyTemplate(call: Call): Promise<Response> {
  const { settings, models } = call.server;
  const fields = await readFields(call, templateFields, chatRules);
  const served = await models.obtain(fields.model);
  const messages = toMessages(fields.messages, call);
  const options = { ...promptOptions(fields, settings), tools: fields.tools };
  const { text, template } = await chatText(served, withSystem(served, messages), options);
  return json({ prompt: text, template });
}

/** As llama.cpp's router describes itself, whatever its models are. */
function routerProps({ registry, settings }: ServerContext): object {
  const { models, autoload } = registry.limits;
  return {
    role: "router",
    max_instances: models === Infinity ? 0 : models,
    models_autoload: autoload,
    model_alias: "lantern",
    model_path: "none",
    default_generation_settings: { params: {}, n_ctx: 0 },
    build_info: fingerprintOf(settings.version),
    cors_proxy_enabled: false,
  };
}

/** The properties of the first model, or of ?model=NAME, as in llama.cpp's server with several models. */
async function props({ server, url }: Call): Promise<Response> {
  const { settings, models } = server;
  const asked = url.searchParams.get("model");
  // A status request does not load an unloaded model; a model that is not opened yet has no status.
  const known = asked === null ? models.list()[0] : models.lookUp(asked);
  const router = server.registry.onDemand && asked === null ? routerProps(server) : undefined;
  if (router && !known) return json(router);
  const served = known ?? (await models.obtain(asked ?? undefined));
  const { info } = served.model;
  return json({
    ...router,
    default_generation_settings: {
      n_ctx: info.contextSize,
      params: generationParams(samplingOf(server, served), info),
    },
    total_slots: settings.parallel,
    model_alias: served.id,
    model_ftype: info.weightType,
    model_path: served.file ?? served.id,
    models: models.list().map(({ id, aliases = [] }) => ({ id, aliases })),
    modalities: { vision: false, video: false, audio: false },
    endpoint_slots: settings.slots,
    endpoint_props: false,
    endpoint_metrics: settings.metrics,
    chat_template: info.chatTemplate ?? "",
    chat_template_available: info.hasChatTemplate,
    bos_token: info.bosToken,
    eos_token: info.eosToken,
    backend: publicInfo(info).backend,
    build_info: fingerprintOf(settings.version),
    ignored_fields: server.ignored.list,
    is_sleeping: (await served.model.health()).unloaded ?? false,
    cors_proxy_enabled: false,
  });
}

/** llama.cpp's POST /props changes settings of the whole server, which is not supported here. */
function setProps(): never {
  throw notSupported(
    "the server's settings cannot change while it runs. Restart it with other flags",
  );
}

/** The problem, in llama.cpp's words if it has any. */
const healthMessages = {
  loading: "Loading model: its engine stopped and is being restarted",
  error: "the engine of a model does not respond",
  none: "no model is loaded",
} as const;

/** Asks every engine; a response from the server alone would not show their health. */
async function health({ server }: Call): Promise<Response> {
  const states = await Promise.all(server.models.list().map(({ model }) => model.health()));
  const found = (status: string): boolean => states.some((state) => state.status === status);
  const problem =
    states.length === 0 && !server.registry.onDemand
      ? "none"
      : found("error")
        ? "error"
        : found("loading")
          ? "loading"
          : null;
  if (problem === null) return json({ status: "ok" });
  const status = problem === "loading" ? "loading" : "error";
  const message = healthMessages[problem];
  return json({ status, error: { code: 503, message, type: "unavailable_error" } }, 503);
}

export const llamacppRoutes: RouteFamily = {
  name: "llamacpp",
  errors: openaiErrors,
  routes: [
    { method: "GET", path: "/health", access: "open", handle: health },
    { method: "GET", path: "/v1/health", access: "open", handle: health },
    { method: "GET", path: "/props", access: "use", handle: props },
    { method: "POST", path: "/props", access: "use", handle: setProps },
    { method: "GET", path: "/slots", access: "use", handle: listSlots },
    { method: "POST", path: "/slots/:id", access: "use", handle: slotAction },
    { method: "GET", path: "/lora-adapters", access: "use", handle: listAdapters },
    { method: "POST", path: "/lora-adapters", access: "use", handle: setAdapters },
    { method: "POST", path: "/completion", access: "use", handle: completion },
    { method: "POST", path: "/completions", access: "use", handle: completion },
    { method: "POST", path: "/infill", access: "use", handle: infill },
    { method: "POST", path: "/tokenize", access: "use", handle: tokenize },
    { method: "POST", path: "/detokenize", access: "use", handle: detokenize },
    { method: "POST", path: "/apply-template", access: "use", handle: applyTemplate },
  ],
};
