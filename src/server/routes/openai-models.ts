// OpenAI's /v1/models: the models by name. llama.cpp's /models is the same list, and loads and unloads them.

import * as z from "zod";
import { noRules, readFields } from "../body.ts";
import { ApiError, invalidRequest, modelNotFound, openaiErrors } from "../errors.ts";
import { modelObjects, servedObject, unopenedObject } from "../model-objects.ts";
import { type Call, json, type RouteFamily } from "../route.ts";

async function listModels({ server }: Call): Promise<Response> {
  return json({ object: "list", data: await modelObjects(server) });
}

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

const named = z.object({ model: z.string().min(1).max(500) });

/** The name under which a model is in memory, or would be. */
async function heldName(call: Call): Promise<string> {
  const { model } = await readFields(call, named, noRules);
  return (await call.server.models.held(model)).held;
}

/** It returns when the load has begun: GET /models says how it goes on. */
async function load(call: Call): Promise<Response> {
  const id = await heldName(call);
  const { pool } = call.server;
  if (pool.state(id).value === "loaded") {
    throw invalidRequest(`model ${JSON.stringify(id)} is already loaded`, "model", "model_loaded");
  }
  pool.start(id);
  return json({ success: true });
}

async function unload(call: Call): Promise<Response> {
  const id = await heldName(call);
  const { pool } = call.server;
  const { value } = pool.state(id);
  if (value === "unloaded") {
    throw invalidRequest(`model ${JSON.stringify(id)} is not loaded`, "model", "model_not_loaded");
  }
  if (value === "loading") await pool.stop(id);
  if (!(await pool.unload(id))) throw busy(id);
  return json({ success: true });
}

function busy(id: string): ApiError {
  return new ApiError({
    status: 409,
    type: "invalid_request_error",
    code: "model_busy",
    param: "model",
    message: `model ${JSON.stringify(id)} is answering a request. Stop it, or wait until it is answered`,
  });
}

export const openaiModelRoutes: RouteFamily = {
  name: "openai-models",
  errors: openaiErrors,
  routes: [
    { method: "GET", path: "/v1/models", access: "use", handle: listModels },
    { method: "GET", path: "/models", access: "use", handle: listModels },
    { method: "POST", path: "/models/load", access: "use", handle: load },
    { method: "POST", path: "/models/unload", access: "use", handle: unload },
    {
      method: "GET",
      path: "/v1/models/:id{.+}",
      access: "use", // names may contain slashes
      handle: oneModel,
    },
  ],
};
