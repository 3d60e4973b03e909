// OpenAI's /v1/models: the models by name. llama.cpp's /models is the same list (llamacpp/models.ts).

import { modelNotFound, openaiErrors } from "../../errors.ts";
import { servedObject, unopenedObject } from "../../models/objects.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { listModels } from "../llamacpp/models.ts";

async function oneModel({ server, params }: Call): Promise<Response> {
  const served = server.models.lookUp(params.id!);
  if (served) return json(servedObject(server, served));
  const unopened = await server.models.unopened();
  const found = unopened.find(({ id, aliases }) => [id, ...aliases].includes(params.id!));
  if (found) return json(unopenedObject(server, found));
  throw modelNotFound(
    params.id!,
    [...server.models.list(), ...unopened].map(({ id }) => id),
  );
}

export const openaiModelRoutes: RouteFamily = {
  name: "openai-models",
  errors: openaiErrors,
  routes: [
    { method: "GET", path: "/v1/models", access: "use", handle: listModels },
    {
      method: "GET",
      path: "/v1/models/:id{.+}",
      access: "use", // names may contain slashes
      handle: oneModel,
    },
  ],
};
