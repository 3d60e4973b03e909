// llama.cpp's routes about models, as its router has them: the list with the status of each, loading and unloading, downloading and
// deleting, and a stream of what happens to them. The list is that of OpenAI's /v1/models, too (openai/models.ts).

import * as z from "zod";
import { noRules, readFields } from "../../body.ts";
import { invalidRequest, notSupported, openaiErrors } from "../../errors.ts";
import { modelBusy } from "../../models/errors.ts";
import type { ModelLoader } from "../../models/host.ts";
import { asAnthropic, modelObjects } from "../../models/objects.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { eventStream } from "../../sse.ts";

/** ?reload=1 asks llama.cpp to look for models again: here every list does. */
export async function listModels({ server, request }: Call): Promise<Response> {
  const all = await modelObjects(server);
  // llama.cpp's /models has Ollama's name for the list as well; Anthropic's client wants fields of its own.
  if (!request.headers.has("anthropic-version")) {
    return json({ object: "list", data: all, models: all });
  }
  const data = all.map(asAnthropic);
  const [first, last] = [data[0]?.id ?? null, data.at(-1)?.id ?? null];
  return json({ data, has_more: false, first_id: first, last_id: last });
}

const named = z.object({ model: z.string().min(1).max(500) });

/** It returns when the load has begun: GET /models and /models/sse report its progress. */
async function load(call: Call): Promise<Response> {
  const { model } = await readFields(call, named, noRules);
  const { held: id } = await call.server.models.held(model);
  const { registry } = call.server;
  if (registry.state(id).value === "loaded") {
    throw invalidRequest(`model ${JSON.stringify(id)} is already loaded`, "model", "model_loaded");
  }
  registry.start(id);
  return json({ success: true });
}

/** Stops a download or a load, too. */
async function unload(call: Call): Promise<Response> {
  const { model } = await readFields(call, named, noRules);
  const { models } = call.server;
  if (models.loader?.downloads().some(({ name }) => name === model)) {
    await models.loader.cancel(model);
    return json({ success: true });
  }
  const { held: id } = await models.held(model);
  const { registry } = call.server;
  const { value } = registry.state(id);
  if (value === "unloaded") {
    throw invalidRequest(`model ${JSON.stringify(id)} is not loaded`, "model", "model_not_loaded");
  }
  if (value === "loading") await registry.stop(id);
  if (!(await registry.unload(id))) throw modelBusy(id);
  return json({ success: true });
}

/** It returns when the download has begun. */
async function download(call: Call): Promise<Response> {
  const loader = loaderOf(call);
  const { model } = await readFields(call, named, noRules);
  if (await isHere(call, model)) {
    throw invalidRequest(`model ${JSON.stringify(model)} is here already`, "model", "model_exists");
  }
  await loader.download(model);
  return json({ success: true });
}

async function isHere({ server }: Call, name: string): Promise<boolean> {
  return server.models.lookUp(name) !== undefined || (await server.models.isKnown(name));
}

/** ?model=NAME. One in memory is unloaded first. */
async function remove(call: Call): Promise<Response> {
  const { server, url } = call;
  const { models, registry, made, events } = server;
  const asked = url.searchParams.get("model") ?? "";
  if (asked === "") {
    throw invalidRequest(
      '"model": expected the name of a model in the query (?model=NAME)',
      "model",
    );
  }
  if (await made.remove(asked)) {
    events.emit({ model: asked, event: "model_remove" });
    return json({ success: true });
  }
  const loader = loaderOf(call);
  if (loader.downloads().some(({ name }) => name === asked)) {
    await loader.cancel(asked);
    await loader.delete(asked).catch(() => {}); // perhaps nothing of it has come yet
    events.emit({ model: asked, event: "model_remove" });
    return json({ success: true });
  }
  const { held: id } = await models.held(asked);
  const found = await registry.onDemand?.list();
  const source = found?.find((one) => one.id === id)?.source;
  if (source !== undefined && source !== "cache") {
    throw invalidRequest(
      `model ${JSON.stringify(id)} is not in the cache folder: its file is deleted where it lies`,
      "model",
      "not_deletable",
    );
  }
  await registry.stop(id);
  if (!(await registry.unload(id))) throw modelBusy(id);
  await registry.forget(id);
  await loader.delete(id);
  return json({ success: true });
}

/** 501: this server was started without a library. */
function loaderOf({ server }: Call): ModelLoader {
  if (server.models.loader) return server.models.loader;
  throw notSupported("this server does not download or delete models (--no-web)");
}

function follow({ server, signal }: Call): Response {
  const events = server.events.follow(signal);
  async function* sent(): AsyncGenerator<{ data: object }> {
    for await (const event of events) yield { data: event };
  }
  return eventStream(sent(), { server, error: (facts) => [{ data: openaiErrors.body(facts) }] });
}

export const llamacppModelRoutes: RouteFamily = {
  name: "llamacpp-models",
  errors: openaiErrors,
  routes: [
    { method: "GET", path: "/models", access: "use", handle: listModels },
    { method: "GET", path: "/models/sse", access: "use", handle: follow },
    { method: "POST", path: "/models/load", access: "use", handle: load },
    { method: "POST", path: "/models/unload", access: "use", handle: unload },
    { method: "POST", path: "/models", access: "admin", handle: download },
    { method: "DELETE", path: "/models", access: "admin", handle: remove },
  ],
};
