// Ollama's routes about models: the list (/api/tags), loaded ones (/api/ps), details (/api/show). manage.ts has those that
// change something.

import * as z from "zod";
import { keepAliveText, keepMsOf } from "../../../../src/base/durations.ts";
import type { Model, ModelInfo } from "../../../../src/index.ts";
import { noRules, readFields } from "../../body.ts";
import type { ServedModel, ServerContext } from "../../context.ts";
import { ApiError } from "../../errors.ts";
import { notLoaded } from "../../models/errors.ts";
import type { LibraryModel } from "../../models/library.ts";
import { type Call, json, type Route } from "../../route.ts";
import { heldId } from "../../served-model.ts";
import { modelfileText, parametersText } from "./modelfile.ts";

/** The time that a list waits for the digests of new files: later ones are in the next list. */
const digestPatienceMs = 1000;

/** keep_alive, in milliseconds. */
export const keepAliveField: z.ZodType<number> = z.unknown().transform((value, issues) => {
  const ms = keepMsOf(value);
  if (ms !== undefined) return ms;
  const got = JSON.stringify(value)?.slice(0, 100);
  issues.addIssue(`got ${got}, expected ${keepAliveText}`);
  return z.NEVER;
});

/** Ollama's clients append ":latest"; hf.co/owner/repo is its name for a hub repository. */
export function plainName(name: string): string {
  return name
    .replace(/:latest$/, "")
    .replace(/^(?:https?:\/\/)?(?:hf\.co|huggingface\.co)\//, "hf:");
}

/** The model that answers a request, which stays in memory for `keepMs` after it. */
export async function servedAs(
  call: Call,
  asked: string,
  keepMs?: number | undefined,
): Promise<ServedModel> {
  const served = await servedNamed(call, asked);
  if (keepMs !== undefined) call.server.registry.keep(served.id, keepMs);
  return served;
}

/** Unloads a model when it is idle; returns its name. It is not loaded for that. */
export async function unloadNamed({ server }: Call, asked: string): Promise<string> {
  const { models, registry } = server;
  const name = plainName(asked);
  const known = models.lookUp(name) ?? models.lookUp(asked);
  const { name: id, held } = known
    ? { name: known.id, held: heldId(known) }
    : registry.onDemand
      ? await models.held(name)
      : { name: models.find(asked).id, held: models.find(asked).id };
  registry.keep(held, 0);
  await registry.unload(held);
  return id;
}

/** The model behind a name or a copy's name. For a model on this machine that is not loaded, no other one answers. */
async function servedNamed({ server }: Call, asked: string): Promise<ServedModel> {
  const { models } = server;
  const name = plainName(asked);
  for (const one of [name, asked]) {
    if (models.lookUp(one) || (await models.isKnown(one))) return await models.obtain(one);
  }
  if (await findLocal(server, name)) throw notLoaded(name);
  return await models.obtain(asked);
}

export async function findLocal(
  server: ServerContext,
  name: string,
): Promise<LibraryModel | undefined> {
  const all = (await server.library?.list()) ?? [];
  return all.find((model) => isHere(model) && model.name === name);
}

/** A model that is on this machine and was not opened: the facts that are known without reading it. */
async function findUnopened(
  server: ServerContext,
  asked: string,
): Promise<{ name: string; licence: string } | undefined> {
  const of = server.models.variants.get(asked)?.of ?? asked;
  const local = await findLocal(server, of);
  if (local) return local;
  const isKnown = await server.models.isKnown(of);
  return isKnown ? { name: (await server.models.held(of)).held, licence: "" } : undefined;
}

function isHere({ state }: LibraryModel): boolean {
  return state === "installed" || state === "cached" || state === "linked";
}

/** sha256 of its file, if it is known within the time limit of a list. */
async function digestOf(server: ServerContext, name: string): Promise<string> {
  const digest = server.library?.digest(name).catch(() => undefined);
  if (!digest) return "";
  const { promise: late, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(resolve, digestPatienceMs, undefined);
  const found = await Promise.race([digest, late]);
  clearTimeout(timer);
  return found ?? "";
}

async function servedEntry(server: ServerContext, served: ServedModel): Promise<object> {
  const { id, model, created } = served;
  return {
    name: id,
    model: id,
    modified_at: new Date(created * 1000).toISOString(),
    size: model.info.weightBytes,
    digest: await digestOf(server, id),
    details: detailsOf(model.info),
  };
}

function localDetails({ name }: Pick<LibraryModel, "name">): object {
  const quantization =
    /[-_.:]((?:I?Q\d\w*|F16|F32|BF16))(?:\.gguf)?$/i.exec(name.slice(-100))?.[1] ?? "";
  return {
    parent_model: "",
    format: "gguf",
    family: "",
    families: [],
    parameter_size: "",
    quantization_level: quantization.toUpperCase(),
  };
}

function detailsOf(info: ModelInfo): object {
  return {
    parent_model: "",
    format: info.format,
    family: info.architecture,
    families: [info.architecture],
    parameter_size: `${(info.parameters / 1e6).toFixed(1)}M`,
    quantization_level: info.weightType.toUpperCase(),
  };
}

/** Loaded models, those on disk, and copies of either. */
async function tags({ server }: Call): Promise<Response> {
  const served = server.models.list();
  const names = new Set(served.map(({ id }) => id));
  const listed = ((await server.library?.list()) ?? []).filter(isHere);
  const unopened = await server.models.unopened();
  const known = [...unopened.map(({ id, bytes }) => ({ name: id, bytes })), ...listed];
  const local = known.filter(({ name }) => !names.has(name) && names.add(name));
  const entries = await Promise.all([
    ...served.map((one) => servedEntry(server, one)),
    ...local.map(async (model) => ({
      name: model.name,
      model: model.name,
      modified_at: new Date(server.started * 1000).toISOString(),
      size: model.bytes,
      digest: await digestOf(server, model.name),
      details: localDetails(model),
    })),
  ]);
  const byName = new Map(entries.map((entry) => [(entry as { name: string }).name, entry]));
  for (const [copy, { of, created }] of server.models.variants) {
    const entry = byName.get(of);
    const modified_at = new Date(created * 1000).toISOString();
    if (entry) entries.push({ ...entry, name: copy, model: copy, modified_at });
  }
  return json({ models: entries });
}

/** The models in memory: those that were unloaded are served, too, and are loaded by the next request. */
async function ps({ server }: Call): Promise<Response> {
  const models = server.models.list().map(async (served) => {
    const { info } = served.model;
    if ((await served.model.health()).unloaded) return [];
    const { stateBytesHeld } = await served.model.status();
    return {
      ...(await servedEntry(server, served)),
      size: info.weightBytes + stateBytesHeld,
      size_vram: 0,
      context_length: info.contextSize,
      expires_at: expiryText(server.registry.expiresAt(served.id)),
    };
  });
  return json({ models: (await Promise.all(models)).flat() });
}

/** For a model that stays until the server ends: a date in the far future. */
function expiryText(ms: number): string {
  const last = Date.parse("9999-12-31T23:59:59.000Z");
  return new Date(Math.min(ms, last)).toISOString();
}

export const named: Readonly<Record<"model" | "name", z.ZodOptional<z.ZodString>>> = {
  model: z.string().max(500).optional(),
  name: z.string().max(500).optional(), // before 2024
};

export function nameOf(fields: { model?: string | undefined; name?: string | undefined }): string {
  const name = fields.model ?? fields.name;
  if (name) return plainName(name);
  throw new ApiError({
    status: 400,
    type: "invalid_request_error",
    code: "invalid_type",
    param: "model",
    message: '"model": expected the name of a model',
  });
}

const showFields = z.object({ ...named, verbose: z.boolean().optional() });

async function show(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, showFields, noRules);
  const asked = nameOf(fields);
  const local = server.models.lookUp(asked) ? undefined : await findUnopened(server, asked);
  const made = server.made.get(asked);
  if (local) {
    const preset = made && server.made.preset(made);
    const described = { ...made, preset };
    return json({
      license: local.licence,
      modelfile: modelfileText(made?.from ?? local.name, described),
      parameters: parametersText(described),
      ...(preset?.system !== undefined && { system: preset.system }),
      template: made?.template ?? "",
      details: localDetails(local),
      model_info: {},
      capabilities: ["completion"],
      modified_at: new Date(server.started * 1000).toISOString(),
    });
  }
  const { models } = server;
  // A request for details loads no model.
  const served = models.lookUp(asked) ?? (await servedAs(call, asked));
  const { model, created, preset } = served;
  const { info } = model;
  const described = { ...made, preset };
  return json({
    modelfile: modelfileText(made?.from ?? heldId(served), described),
    parameters: parametersText(described),
    ...(preset?.system !== undefined && { system: preset.system }),
    template: info.chatTemplate ?? "",
    details: detailsOf(info),
    model_info: {
      "general.architecture": info.architecture,
      "general.parameter_count": info.parameters,
      [`${info.architecture}.context_length`]: info.trainedContext,
      [`${info.architecture}.block_count`]: info.layers,
    },
    capabilities: await capabilitiesOf(model),
    modified_at: new Date(created * 1000).toISOString(),
  });
}

/** The kinds of requests that Ollama's clients may send it. */
async function capabilitiesOf(model: Model): Promise<string[]> {
  const { generates, fillTokens, embedding, hasChatTemplate } = model.info;
  const texts = generates ? ["completion", ...(fillTokens ? ["insert"] : [])] : [];
  const format = generates && hasChatTemplate ? await model.answerFormat() : undefined;
  if (format?.calls ?? format?.frames) texts.push("tools");
  if (format?.reasoning ?? format?.frames) texts.push("thinking");
  return [...texts, ...(embedding ? ["embedding"] : [])];
}

export const ollamaModelRoutes: readonly Route[] = [
  { method: "GET", path: "/api/tags", access: "use", handle: tags },
  { method: "GET", path: "/api/ps", access: "use", handle: ps },
  { method: "POST", path: "/api/show", access: "use", handle: show },
];
