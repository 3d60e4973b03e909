// A model in the lists of OpenAI and llama.cpp: its facts, and whether it is in memory.

import type { ModelInfo } from "../../../src/index.ts";
import type { ServerContext } from "../context.ts";
import { heldId, type ServedModel } from "../served-model.ts";
import type { RunningDownload } from "./host.ts";
import type { OnDemandModel } from "./on-demand.ts";

/** The fields that all have. */
export interface ModelObject {
  readonly id: string;
  readonly created: number;
  readonly [more: string]: unknown;
}

/** All models that requests can name: those that were opened, variants of them, and those that are loaded on demand. */
export async function modelObjects(server: ServerContext): Promise<ModelObject[]> {
  const { models } = server;
  const all = await server.registry.onDemand?.list();
  const variants = [...models.variants.keys()].flatMap((name) => models.lookUp(name) ?? []);
  const unopened = await models.unopened();
  const downloads = models.loader?.downloads() ?? [];
  const later = [...models.variants].flatMap(([id, { of, created }]) => {
    const base = unopened.find((one) => one.id === of);
    return base ? [{ ...unopenedObject(server, { ...base, id, aliases: [] }, of), created }] : [];
  });
  return [
    ...downloads.map((one) => downloadObject(server, one)),
    ...[...models.list(), ...variants].map((served) => ({
      ...servedObject(server, served),
      ...(server.made.get(served.id)
        ? { can_remove: true }
        : sourceOf(all?.find(({ id }) => id === served.id))),
    })),
    ...unopened.map((one) => unopenedObject(server, one)),
    ...later,
  ];
}

/** A model in the form of Anthropic's API, with the fields of the others. */
export function asAnthropic(model: ModelObject): ModelObject {
  const { id, created } = model;
  const created_at = new Date(created * 1000).toISOString();
  return { ...model, type: "model", display_name: id, created_at };
}

export function servedObject(server: ServerContext, served: ServedModel): ModelObject {
  const { id, model, created, aliases = [] } = served;
  const { info } = model;
  return {
    id,
    aliases: [id, ...aliases],
    tags: server.settings.tags,
    object: "model",
    created,
    owned_by: "lantern",
    capabilities: capabilitiesOf(info),
    status: statusOf(server, heldId(served)),
    architecture: texts,
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

export function unopenedObject(
  server: ServerContext,
  { id, aliases, file, bytes, source }: OnDemandModel,
  held: string = id,
): ModelObject {
  return {
    id,
    aliases: [id, ...aliases],
    tags: [],
    object: "model",
    created: server.started,
    owned_by: "lantern",
    path: file, // without folders, which clients must not learn
    ...(server.made.get(id) ? { can_remove: true } : sourceOf({ source })),
    status: statusOf(server, held),
    architecture: texts,
    meta: { size: bytes },
  };
}

/** The source of the model, and whether DELETE /models deletes it. */
function sourceOf({ source }: Pick<OnDemandModel, "source"> = {}): object {
  return source === undefined ? {} : { source, can_remove: source === "cache" };
}

/** A model that is not here yet. */
function downloadObject(
  server: ServerContext,
  { name, loadedBytes: done, totalBytes: total }: RunningDownload,
): ModelObject {
  return {
    id: name,
    aliases: [name],
    tags: [],
    object: "model",
    created: server.started,
    owned_by: "lantern",
    status: { value: "downloading", progress: { [name]: { done, total } } },
    architecture: texts,
    source: "cache",
    can_remove: true,
  };
}

/** llama.cpp's status of a model. */
function statusOf({ registry }: ServerContext, id: string): object {
  const { value, error, progress } = registry.state(id);
  if (error !== undefined) return { value, failed: true, exit_code: 1, error };
  if (!progress || progress.totalBytes === 0) return { value };
  return { value, progress: { done: progress.loadedBytes, total: progress.totalBytes } };
}

const texts = { input_modalities: ["text"], output_modalities: ["text"] } as const;

/** The kinds of requests that it answers. */
function capabilitiesOf({ generates, embedding }: ModelInfo): string[] {
  return [
    ...(generates ? ["completion"] : []),
    ...(embedding ? ["embedding"] : []),
    ...(embedding?.labels ? ["rerank"] : []),
  ];
}
