// Ollama's routes that change models: /api/pull and delete, which need the library of `lantern serve`, /api/copy and create.
//
// A copy is another name for the same model. A created model is a copy with parameters and a system message of its own; with another
// template or a larger context it is opened beside the original (models/made.ts).

import * as z from "zod";
import { pause } from "../../../../src/base/backoff.ts";
import type { DerivedModel } from "../../../../src/catalog/derived.ts";
import { LanternError } from "../../../../src/index.ts";
import { type FieldRules, noRules, oneOf, readFields } from "../../body.ts";
import { ApiError, invalidRequest, notFound, notSupported, ollamaErrors } from "../../errors.ts";
import { IgnoredFields } from "../../ignored-fields.ts";
import type { DerivedStore } from "../../models/derived.ts";
import { type ModelLibrary, withoutFolders } from "../../models/library.ts";
import { ollamaOptions } from "../../ollama-options.ts";
import { type Call, json, type Route } from "../../route.ts";
import { lineStream } from "../../sse.ts";
import { parseModelfile } from "./modelfile.ts";
import { findLocal, named, nameOf, plainName } from "./models.ts";

/** Least time between two progress lines. */
const progressMs = 100;

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
    const isFull = error.message.includes("disk is full");
    throw new ApiError(
      {
        status: isFull ? 507 : 400,
        type: isFull ? "server_error" : "invalid_request_error",
        code: isFull ? "storage_full" : "refused",
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
      await pause(progressMs, signal);
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
  await make(call, plainName(source), plainName(destination), {});
  return new Response(null);
}

/** The properties of a created model that differ from the original's. */
type Own = Pick<DerivedModel, "system" | "template" | "adapters"> & {
  readonly parameters?: Readonly<Record<string, unknown>> | undefined;
  readonly contextSize?: number | undefined;
};

async function make(call: Call, source: string, name: string, own: Own): Promise<void> {
  const { models, made, time } = call.server;
  const before = made.get(source);
  const of = before?.from ?? source;
  const original = models.lookUp(of);
  if (!original && !(await models.isKnown(of)) && !(await findLocal(call.server, of))) {
    throw notFound(`model "${source}" not found`);
  }
  const isTaken =
    !made.get(name) &&
    (models.list().some(({ id }) => id === name) ||
      (await models.unopened()).some(({ id }) => id === name) ||
      (await findLocal(call.server, name)) !== undefined);
  if (name === "" || isTaken) {
    throw new ApiError({
      status: 400,
      type: "invalid_request_error",
      code: "name_taken",
      param: "destination",
      message: `"${name}" cannot be the name of a copy, because there is a model of that name`,
    });
  }
  const template = own.template ?? before?.template;
  const adapters = own.adapters?.length ? own.adapters : before?.adapters;
  const isLarger = (own.contextSize ?? 0) > (original?.model.info.contextSize ?? 0);
  const all = {
    name,
    from: original?.id ?? of,
    system: own.system || before?.system,
    template,
    ...(adapters && { adapters }),
    parameters: { ...before?.parameters, ...own.parameters },
    // A model that was opened beside its original before is opened there again.
    isSeparate:
      template !== undefined ||
      adapters !== undefined ||
      isLarger ||
      (before?.isSeparate ?? false) ||
      (made.get(name)?.isSeparate ?? false),
    created: Math.floor(time() / 1000),
  };
  await refusals(made.set(all));
}

const digestShape = /^sha256:[0-9a-f]{64}$/;
const digestHelp = 'expected the digest of an uploaded file, "sha256:" and 64 digits';
const mostAdapters = 16;

const createFields = z.object({
  ...named,
  from: z.string().max(500).optional(),
  system: z.string().max(1_000_000).optional(),
  template: z.string().max(1_000_000).optional(),
  parameters: z.record(z.string(), z.unknown()).optional(),
  /** Digests of uploaded LoRA adapters, by the names of their files. */
  adapters: z.record(z.string(), z.string().regex(digestShape, digestHelp)).optional(),
  modelfile: z.string().max(1_000_000).optional(),
  stream: z.boolean().optional(),
});
const createRules: FieldRules = {
  accepted: ["license"],
  refused: {
    ...Object.fromEntries(
      ["files", "messages", "path"].map((field) => [
        field,
        { why: "a created model has the weights of `from`", fine: isNothing },
      ]),
    ),
    quantize: { why: 'use the Quantize page or "lantern quantize"', fine: oneOf("") },
  },
};

function isNothing(value: unknown): boolean {
  return value === "" || (typeof value === "object" && Object.keys(value ?? {}).length === 0);
}

/** A stored model is used later, by a client that would miss a parameter that is not honoured. */
const nothingIgnored = new IgnoredFields(true);

async function create(call: Call): Promise<Response> {
  const given = await readFields(call, createFields, createRules);
  const file = given.modelfile ? parseModelfile(given.modelfile) : undefined;
  const fields = { ...file, ...given };
  if (fields.from === undefined)
    throw notFound('"from": expected the name of the model to copy', "from");
  const { parameters } = fields;
  const adapters = [...(file?.adapters ?? []), ...Object.values(given.adapters ?? {})];
  if (adapters.length > mostAdapters) {
    const got = `got ${adapters.length}, expected at most ${mostAdapters}`;
    throw invalidRequest(`"adapters": ${got}`, "adapters");
  }
  const { contextSize } = ollamaOptions(parameters ?? {}, "parameters.", {}, nothingIgnored);
  const template = fields.template || undefined;
  if (template !== undefined) checkTemplate(template);
  await make(call, plainName(fields.from), nameOf(fields), {
    ...{ system: fields.system, template, adapters, parameters, contextSize },
  });
  const lines = [{ status: "using existing layer" }, { status: "success" }];
  if (fields.stream === false) return json(lines.at(-1));
  async function* all(): AsyncGenerator<object> {
    yield* lines;
  }
  return lineStream(all(), { server: call.server, error: (facts) => [ollamaErrors.body(facts)] });
}

/** Ollama's own templates are Go's, with {{ .Prompt }}: read as Jinja they would be garbage. */
function checkTemplate(template: string): void {
  if (!/\{\{-?\s*(?:\.[A-Z]|range\b|end\b|if \.)/.test(template)) return;
  throw invalidRequest(
    "\"template\": got a Go template, expected a Jinja template, as in the model's own file, or the name of a built-in one. Leave it out to use the model's own",
    "template",
  );
}

/** 404: it is not here. Ollama's clients check this before they upload. */
async function hasBlob(call: Call): Promise<Response> {
  const { digest = "" } = call.params;
  if (await refusals(storeOf(call).findBlob(digest))) return new Response(null);
  throw notFound(`${digest} is not here`);
}

async function putBlob(call: Call): Promise<Response> {
  const { digest = "" } = call.params;
  const store = storeOf(call);
  const { body } = call.request;
  if (!body) throw invalidRequest("the request has no body, expected a file");
  if (!(await refusals(store.findBlob(digest)))) await refusals(store.writeBlob(digest, body));
  return new Response(null, { status: 201 });
}

/** 501: models that are made end with this server. */
function storeOf({ server: { made } }: Call): DerivedStore {
  if (made.store) return made.store;
  throw notSupported("this server stores no files");
}

async function remove(call: Call): Promise<Response> {
  const { server } = call;
  const { models, registry } = server;
  const name = nameOf(await readFields(call, z.object(named), noRules));
  if (await refusals(server.made.remove(name))) return new Response(null);
  if (registry.state(name).value !== "unloaded") {
    throw new ApiError({
      status: 409,
      type: "invalid_request_error",
      code: "model_loaded",
      param: "model",
      message: `model "${name}" is loaded. Unload it first: on the Models page, or with keep_alive 0`,
    });
  }
  const isListed = (await models.isKnown(name)) || models.lookUp(name)?.id === name;
  if (!(await findLocal(server, name))) {
    if (!isListed) throw notFound(`model "${name}" not found`, "model", "model_not_found");
    throw invalidRequest(
      `model "${name}" is not in the cache folder: its file is deleted where it lies`,
      "model",
      "not_deletable",
    );
  }
  await refusals(libraryOf(call).remove(name));
  await registry.forget(name);
  return new Response(null);
}

export const ollamaManageRoutes: readonly Route[] = [
  { method: "POST", path: "/api/pull", access: "admin", handle: pull },
  { method: "POST", path: "/api/copy", access: "admin", handle: copy },
  { method: "POST", path: "/api/create", access: "admin", handle: create },
  { method: "GET", path: "/api/blobs/:digest", access: "admin", handle: hasBlob }, // HEAD
  { method: "POST", path: "/api/blobs/:digest", access: "admin", handle: putBlob },
  { method: "DELETE", path: "/api/delete", access: "admin", handle: remove },
];
