// Ollama's routes about models: the list (/api/tags), loaded ones (/api/ps), details (/api/show), and /api/pull, copy,
// create and delete, which need the library of `lantern serve`.
//
// A copy is another name for the same model until the server ends. /api/create only makes a copy: models with other
// weights, templates or parameters are not supported.

import * as z from "zod";
import { LanternError, type Model, type ModelInfo } from "../../index.ts";
import { type FieldRules, noRules, oneOf, readFields } from "../body.ts";
import type { ServedModel, ServerContext } from "../context.ts";
import { ApiError, notFound, notSupported, ollamaErrors } from "../errors.ts";
import { type LibraryModel, type ModelLibrary, withoutFolders } from "../library.ts";
import { type Call, json, type Route } from "../route.ts";
import { lineStream } from "../sse.ts";

/** How long a list waits for the digests of new files: later ones are in the next list. */
const digestPatienceMs = 1000;
/** Least time between two progress lines. */
const progressMs = 100;

/** Ollama's clients append ":latest"; hf.co/owner/repo is its name for a hub repository. */
function plainName(name: string): string {
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
  if (keepMs !== undefined) call.server.keepAlive.set(served.id, keepMs);
  return served;
}

/** The model behind a name or a copy's name. For a model on this machine that is not loaded, no other one answers. */
async function servedNamed({ server }: Call, asked: string): Promise<ServedModel> {
  const name = server.copies.get(plainName(asked)) ?? plainName(asked);
  const served = server.models.lookUp(name) ?? server.models.lookUp(asked);
  if (served) return served;
  const local = await findLocal(server, name);
  if (local) {
    throw notFound(
      `model "${name}" is on this machine but not loaded. Load it on the Models page, or start the server with -m ${name}`,
      "model",
      "model_not_loaded",
    );
  }
  return server.models.find(asked);
}

async function findLocal(server: ServerContext, name: string): Promise<LibraryModel | undefined> {
  const all = (await server.library?.list()) ?? [];
  return all.find((model) => isHere(model) && model.name === name);
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

function localDetails({ name }: LibraryModel): object {
  const quantization = /[-_.:]((?:I?Q\d\w*|F16|F32|BF16))(?:\.gguf)?$/i.exec(name)?.[1] ?? "";
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
  const local = ((await server.library?.list()) ?? []).filter(
    (model) => isHere(model) && !names.has(model.name),
  );
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
  for (const [copy, original] of server.copies) {
    const entry = byName.get(original);
    if (entry) entries.push({ ...entry, name: copy, model: copy });
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
      expires_at: expiryText(server.keepAlive.expiresAt(served.id)),
    };
  });
  return json({ models: (await Promise.all(models)).flat() });
}

/** For a model that stays until the server ends, a time that never comes. */
function expiryText(ms: number): string {
  const last = Date.parse("9999-12-31T23:59:59.000Z");
  return new Date(Math.min(ms, last)).toISOString();
}

const named = {
  model: z.string().max(500).optional(),
  name: z.string().max(500).optional(), // before 2024
};

function nameOf(fields: { model?: string | undefined; name?: string | undefined }): string {
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
  const name = server.copies.get(asked) ?? asked;
  const local = server.models.lookUp(name) ? undefined : await findLocal(server, name);
  if (local) {
    return json({
      license: local.licence,
      modelfile: `FROM ${local.name}\n`,
      parameters: "",
      template: "",
      details: localDetails(local),
      model_info: {},
      capabilities: ["completion"],
      modified_at: new Date(server.started * 1000).toISOString(),
    });
  }
  const { id, model, created } = await servedAs(call, asked);
  const { info } = model;
  return json({
    modelfile: `FROM ${id}\n`,
    parameters: "",
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

/** What Ollama's clients may ask of it. */
async function capabilitiesOf(model: Model): Promise<string[]> {
  const { generates, fillTokens, embedding, hasChatTemplate } = model.info;
  const texts = generates ? ["completion", ...(fillTokens ? ["insert"] : [])] : [];
  const format = generates && hasChatTemplate ? await model.answerFormat() : undefined;
  if (format?.calls ?? format?.frames) texts.push("tools");
  if (format?.reasoning ?? format?.frames) texts.push("thinking");
  return [...texts, ...(embedding ? ["embedding"] : [])];
}

/** 501: this server was started without a library. */
function libraryOf({ server }: Call): ModelLibrary {
  if (server.library) return server.library;
  throw notSupported(
    "this server does not manage models. It serves the model that it was started with",
  );
}

/** Passes the library's refusals on to the client, without the folders of this machine. */
async function refusals<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof LanternError) || error instanceof ApiError) throw error;
    if (error.code !== "usage" && error.code !== "source") throw error;
    throw new ApiError(
      {
        status: 400,
        type: "invalid_request_error",
        code: "refused",
        param: "model",
        message: withoutFolders(error.message),
      },
      { cause: error },
    );
  }
}

const pullFields = z.object({ ...named, stream: z.boolean().optional() });
const pullRules: FieldRules = {
  accepted: ["username", "password"],
  refused: { insecure: { why: "downloads are always verified", fine: oneOf(false) } },
};

async function pull(call: Call): Promise<Response> {
  const fields = await readFields(call, pullFields, pullRules);
  const library = libraryOf(call);
  const name = nameOf(fields);
  const known = (await library.list()).find((model) => model.name === name);
  if (!known && !library.canDownload(name)) {
    throw notFound(
      `model "${name}" is neither known here nor a name on the Hugging Face hub (hf.co/owner/repo)`,
    );
  }
  const lines = pullLines(call, library, name, known?.sha256);
  if (fields.stream !== false) {
    return lineStream(lines, { server: call.server, error: (facts) => [ollamaErrors.body(facts)] });
  }
  let last: object = {};
  for await (const line of lines) last = line;
  return json(last);
}

async function* pullLines(
  call: Call,
  library: ModelLibrary,
  name: string,
  sha256: string | undefined,
): AsyncGenerator<object> {
  const digest = sha256 === undefined ? {} : { digest: `sha256:${sha256}` };
  const leave = new AbortController();
  const signal = AbortSignal.any([call.signal, leave.signal]);
  let progress: { loadedBytes: number; totalBytes: number } | undefined;
  let wake = Promise.withResolvers<void>();
  let isDone = false;
  const line = (now: NonNullable<typeof progress>): object => {
    progress = undefined;
    const { loadedBytes: completed, totalBytes: total } = now;
    return { status: `pulling ${name}`, ...digest, total, completed };
  };
  yield { status: "pulling manifest" };
  const downloading = refusals(
    library.download(name, {
      signal,
      onProgress(now) {
        progress = now;
        wake.resolve();
      },
    }),
  ).finally(() => {
    isDone = true;
    wake.resolve();
  });
  downloading.catch(() => {}); // awaited below
  try {
    while (!isDone) {
      await wake.promise;
      wake = Promise.withResolvers();
      if (!progress) continue;
      yield line(progress);
      await new Promise((resolve) => setTimeout(resolve, progressMs));
    }
    await downloading;
    if (progress) yield line(progress);
    yield { status: "verifying sha256 digest" }; // a download always does this
    yield { status: "success" };
  } finally {
    leave.abort(); // a client that has gone stops it; the next pull resumes it
  }
}

const copyFields = z.object({ source: z.string().max(500), destination: z.string().max(500) });

async function copy(call: Call): Promise<Response> {
  const { source, destination } = await readFields(call, copyFields, noRules);
  await addCopy(call, plainName(source), plainName(destination));
  return new Response(null);
}

async function addCopy({ server }: Call, source: string, destination: string): Promise<void> {
  const own = server.copies;
  const original = own.get(source) ?? source;
  const isServed = server.models.list().some(({ id }) => id === original);
  if (!isServed && !(await findLocal(server, original))) {
    throw notFound(`model "${source}" not found`);
  }
  const isTaken = server.models.list().some(({ id }) => id === destination);
  if (destination === "" || isTaken || (await findLocal(server, destination))) {
    throw new ApiError({
      status: 400,
      type: "invalid_request_error",
      code: "name_taken",
      param: "destination",
      message: `"${destination}" cannot be the name of a copy, because there is a model of that name`,
    });
  }
  if (own.size >= maxCopies) own.delete(own.keys().next().value!);
  own.set(destination, original);
}

const maxCopies = 1000;

const createFields = z.object({
  ...named,
  from: z.string().max(500).optional(),
  stream: z.boolean().optional(),
});
const onlyCopies = "a created model is a copy, with the weights, template and settings of `from`";
const createRules: FieldRules = {
  accepted: ["license"],
  refused: Object.fromEntries(
    ["files", "adapters", "template", "system", "parameters", "messages", "modelfile", "path"].map(
      (field) => [field, { why: onlyCopies, fine: isNothing }],
    ),
  ),
};

function isNothing(value: unknown): boolean {
  return value === "" || (typeof value === "object" && Object.keys(value ?? {}).length === 0);
}

async function create(call: Call): Promise<Response> {
  const rules = {
    ...createRules,
    refused: {
      ...createRules.refused,
      quantize: { why: 'use the Quantize page or "lantern quantize"', fine: oneOf("") },
    },
  };
  const fields = await readFields(call, createFields, rules);
  if (fields.from === undefined)
    throw notFound('"from": expected the name of the model to copy', "from");
  await addCopy(call, plainName(fields.from), nameOf(fields));
  const lines = [{ status: "using existing layer" }, { status: "success" }];
  if (fields.stream === false) return json(lines.at(-1));
  async function* all(): AsyncGenerator<object> {
    yield* lines;
  }
  return lineStream(all(), { server: call.server, error: (facts) => [ollamaErrors.body(facts)] });
}

async function remove(call: Call): Promise<Response> {
  const { server } = call;
  const name = nameOf(await readFields(call, z.object(named), noRules));
  if (server.copies.delete(name)) return new Response(null);
  const isServed = server.models.list().some(({ id }) => id === name);
  const local = await findLocal(server, name);
  if (!local && !isServed) throw notFound(`model "${name}" not found`, "model", "model_not_found");
  if (isServed) {
    throw new ApiError({
      status: 409,
      type: "invalid_request_error",
      code: "model_loaded",
      param: "model",
      message: `model "${name}" is loaded. Unload it on the Models page first`,
    });
  }
  await refusals(libraryOf(call).remove(name));
  return new Response(null);
}

export const ollamaModelRoutes: readonly Route[] = [
  { method: "GET", path: "/api/tags", access: "use", handle: tags },
  { method: "GET", path: "/api/ps", access: "use", handle: ps },
  { method: "POST", path: "/api/show", access: "use", handle: show },
  { method: "POST", path: "/api/pull", access: "admin", handle: pull },
  { method: "POST", path: "/api/copy", access: "admin", handle: copy },
  { method: "POST", path: "/api/create", access: "admin", handle: create },
  { method: "DELETE", path: "/api/delete", access: "admin", handle: remove },
];
