// OpenAI's /v1/models: the served models, by name.

import type { ModelInfo } from "../../index.ts";
import type { ServedModel } from "../context.ts";
import { openaiErrors } from "../errors.ts";
import { type Call, json, type RouteFamily } from "../route.ts";

function modelObject({ id, model, created, aliases = [] }: ServedModel): object {
  const { info } = model;
  return {
    id,
    aliases: [id, ...aliases],
    tags: [],
    object: "model",
    created,
    owned_by: "lantern",
    capabilities: capabilitiesOf(info),
    meta: {
      architecture: info.architecture,
      n_params: info.parameters,
      size: info.weightBytes,
      weight_type: info.weightType,
      n_vocab: info.vocabSize,
      n_ctx: info.contextSize,
      n_ctx_train: info.trainedContext,
      chat_template: info.hasChatTemplate,
      ...(info.embedding && { n_embd: info.embedding.size, pooling: info.embedding.pooling }),
    },
  };
}

/** What requests may ask of it. */
function capabilitiesOf({ generates, embedding }: ModelInfo): string[] {
  return [
    ...(generates ? ["completion"] : []),
    ...(embedding ? ["embedding"] : []),
    ...(embedding?.labels ? ["rerank"] : []),
  ];
}

function listModels({ server }: Call): Response {
  return json({ object: "list", data: server.models.list().map(modelObject) });
}

export const openaiModelRoutes: RouteFamily = {
  name: "openai-models",
  errors: openaiErrors,
  routes: [
    { method: "GET", path: "/v1/models", access: "use", handle: listModels },
    { method: "GET", path: "/models", access: "use", handle: listModels },
    {
      method: "GET",
      path: "/v1/models/:id{.+}",
      access: "use", // names may contain slashes
      handle: ({ server, params }) => json(modelObject(server.models.findExact(params.id!))),
    },
  ],
};
