// OpenAI's /v1/models: the served models, by name.

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
    meta: {
      architecture: info.architecture,
      n_params: info.parameters,
      size: info.weightBytes,
      weight_type: info.weightType,
      n_vocab: info.vocabSize,
      n_ctx: info.contextSize,
      n_ctx_train: info.trainedContext,
      chat_template: info.hasChatTemplate,
    },
  };
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
