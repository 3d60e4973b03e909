// Ollama's API: /api/chat and /api/generate as lines of JSON, and what there is to know of the models. Nothing is
// loaded, pulled or deleted through it.

import * as z from "zod";
import type { ChatMessage, GenerateOptions, GenerationResult, StopReason } from "../../index.ts";
import { checkFields, emptyList, type FieldRules, noRules, oneOf, readFields } from "../body.ts";
import { type Completion, collect, startCompletion } from "../completion.ts";
import type { ServedModel } from "../context.ts";
import { invalidRequest, ollamaErrors, unsupportedField } from "../errors.ts";
import { objectList } from "../inputs.ts";
import { chatTokens, textTokens } from "../prompt.ts";
import { type Call, json, type RouteFamily } from "../route.ts";
import { generateOptions, samplingShape } from "../sampling-fields.ts";
import { lineStream } from "../sse.ts";
import { embed, embedOld } from "./ollama-embed.ts";

const optionFields = z.object({
  ...samplingShape,
  num_predict: z.int().min(-2).optional(),
  num_ctx: z.int().min(1).optional(),
});

const optionRules: FieldRules = {
  // How the machine is used is decided when the server starts.
  accepted: ["num_thread", "num_gpu", "num_batch", "main_gpu", "use_mmap", "low_vram", "numa"],
  refused: {
    num_keep: { why: "a prompt is never cut" },
    tfs_z: { why: "tail-free sampling is not supported", fine: oneOf(1) },
    penalize_newline: { why: "newlines are tokens like any other" },
  },
};

const common = {
  model: z.string(),
  stream: z.boolean().optional(),
  options: z.record(z.string(), z.unknown()).optional(),
};

const chatFields = z.object({
  ...common,
  messages: objectList.optional(),
});

const messageFields = z.object({
  role: z.enum(["system", "user", "assistant"]),
  content: z.string(),
});

const messageRules: FieldRules = {
  accepted: [],
  refused: {
    images: { why: "this server reads text only", fine: emptyList },
    tool_calls: { why: "this server does not call tools yet", fine: emptyList },
    tool_name: { why: "this server does not call tools yet", fine: oneOf("") },
    thinking: { why: "what a model thought is not read again", fine: oneOf("") },
  },
};

const generateFields = z.object({
  ...common,
  prompt: z.string().optional(),
  system: z.string().optional(),
  raw: z.boolean().optional(),
});

const notHere = "not supported by this server";
const rules: FieldRules = {
  accepted: ["keep_alive"],
  refused: {
    format: { why: "JSON and JSON schemas are not enforced", fine: oneOf("") },
    tools: { why: "this server does not call tools yet", fine: emptyList },
    think: { why: "whether a model thinks cannot be set here", fine: oneOf(false) },
    images: { why: "this server reads text only", fine: emptyList },
    suffix: { why: "filling in the middle is not supported", fine: oneOf("") },
    template: {
      why: "the template is the model's; --chat-template chooses another",
      fine: oneOf(""),
    },
    context: { why: "it is deprecated: send messages to /api/chat", fine: emptyList },
    logprobs: { why: notHere, fine: oneOf(false) },
    top_logprobs: { why: notHere, fine: oneOf(0) },
  },
};

async function chat(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, chatFields, rules);
  const served = server.models.find(fields.model);
  const messages = fields.messages ?? [];
  if (messages.length === 0) return json(loaded(call, served, { message: assistant("") }));
  if (messages.length > server.settings.maxMessages) {
    throw invalidRequest(
      `"messages": got ${messages.length}, expected at most ${server.settings.maxMessages}`,
    );
  }
  const said = messages.map(
    (message, at): ChatMessage =>
      checkFields(message, messageFields, messageRules, `messages[${at}].`),
  );
  const tokens = await chatTokens(served, said);
  const options = readOptions(call, served, fields.options);
  const completion = await startCompletion(call, { served, tokens, options });
  return await reply(call, served, completion, fields.stream, (text) => ({
    message: assistant(text),
  }));
}

async function generate(call: Call): Promise<Response> {
  const fields = await readFields(call, generateFields, rules);
  const served = call.server.models.find(fields.model);
  const { prompt, system, raw } = fields;
  if (raw && system) {
    throw unsupportedField("system", "together with raw, which is the whole prompt as it stands");
  }
  if (prompt === undefined || prompt === "") {
    return json(loaded(call, served, { response: "" }));
  }
  const messages: ChatMessage[] = [
    ...(system ? [{ role: "system" as const, content: system }] : []),
    { role: "user", content: prompt },
  ];
  const tokens = raw ? await textTokens(served, prompt) : await chatTokens(served, messages);
  const options = readOptions(call, served, fields.options);
  const completion = await startCompletion(call, { served, tokens, options });
  return await reply(call, served, completion, fields.stream, (text) => ({ response: text }));
}

function assistant(content: string): object {
  return { role: "assistant", content };
}

/** A request without a question: Ollama's way to load a model, which is loaded already. */
function loaded({ server }: Call, served: ServedModel, empty: object): object {
  const created_at = new Date(server.time()).toISOString();
  return { model: served.id, created_at, ...empty, done_reason: "load", done: true };
}

function readOptions(
  { server }: Call,
  served: ServedModel,
  options: Record<string, unknown> = {},
): GenerateOptions {
  const fields = checkFields(options, optionFields, optionRules, "options.");
  const { contextSize } = served.model.info;
  if (fields.num_ctx !== undefined && fields.num_ctx > contextSize) {
    throw unsupportedField(
      "options.num_ctx",
      `got ${fields.num_ctx}, and the context holds ${contextSize} tokens: it is set at start, with -c`,
    );
  }
  const limit = fields.num_predict;
  const maxTokens = limit === undefined || limit < 0 ? undefined : limit;
  return generateOptions(fields, { maxTokens }, server.settings.sampling);
}

async function reply(
  { server }: Call,
  served: ServedModel,
  completion: Completion,
  stream: boolean | undefined,
  piece: (text: string) => object,
): Promise<Response> {
  const started = server.now();
  const head = (): object => ({
    model: served.id,
    created_at: new Date(server.time()).toISOString(),
  });
  const last = (result: GenerationResult, text: string): object => ({
    ...head(),
    ...piece(text),
    done: true,
    ...endOf(result, server.now() - started),
  });
  if (stream === false) {
    const { result } = await collect(completion);
    return json(last(result, result.text));
  }
  async function* lines(): AsyncGenerator<object> {
    for await (const { text } of completion.tokens()) {
      if (text !== "") yield { ...head(), ...piece(text), done: false };
    }
    yield last(await completion.result, "");
  }
  return lineStream(lines(), { server, error: (facts) => [ollamaErrors.body(facts)] });
}

const doneReasons: Readonly<Record<StopReason, string>> = {
  end: "stop",
  stop: "stop",
  length: "length",
  context: "length",
  aborted: "stop",
};

/** Durations are nanoseconds there. */
function endOf({ timings, stopReason }: GenerationResult, totalMs: number): object {
  const nanoseconds = (ms: number): number => Math.round(ms * 1e6);
  return {
    done_reason: doneReasons[stopReason],
    total_duration: nanoseconds(Math.max(totalMs, timings.promptMs + timings.generatedMs)),
    load_duration: 0,
    prompt_eval_count: timings.promptTokens,
    prompt_eval_duration: nanoseconds(timings.promptMs),
    eval_count: timings.generatedTokens,
    eval_duration: nanoseconds(timings.generatedMs),
  };
}

function modelEntry({ id, model, created }: ServedModel): object {
  const { info } = model;
  return {
    name: id,
    model: id,
    modified_at: new Date(created * 1000).toISOString(),
    size: info.weightBytes,
    digest: "",
    details: detailsOf(info),
  };
}

function detailsOf(info: ServedModel["model"]["info"]): object {
  return {
    parent_model: "",
    format: info.format,
    family: info.architecture,
    families: [info.architecture],
    parameter_size: `${(info.parameters / 1e6).toFixed(1)}M`,
    quantization_level: info.weightType.toUpperCase(),
  };
}

const showFields = z.object({
  model: z.string().optional(),
  name: z.string().optional(),
  verbose: z.boolean().optional(),
});

async function show(call: Call): Promise<Response> {
  const fields = await readFields(call, showFields, noRules);
  const { model, created } = call.server.models.find(fields.model ?? fields.name);
  const { info } = model;
  return json({
    modelfile: "",
    parameters: "",
    template: "",
    details: detailsOf(info),
    model_info: {
      "general.architecture": info.architecture,
      "general.parameter_count": info.parameters,
      [`${info.architecture}.context_length`]: info.trainedContext,
      [`${info.architecture}.block_count`]: info.layers,
    },
    capabilities: ["completion", "embedding"],
    modified_at: new Date(created * 1000).toISOString(),
  });
}

function running({ id, model, created }: ServedModel): object {
  const { info } = model;
  return {
    ...modelEntry({ id, model, created }),
    size: info.weightBytes + info.contextSize * info.kvBytesPerToken,
    size_vram: 0,
    context_length: info.contextSize,
    expires_at: "9999-12-31T23:59:59Z", // stays until the server ends
  };
}

export const ollamaRoutes: RouteFamily = {
  name: "ollama",
  errors: ollamaErrors,
  routes: [
    { method: "POST", path: "/api/chat", handle: chat },
    { method: "POST", path: "/api/generate", handle: generate },
    { method: "POST", path: "/api/embed", handle: embed },
    { method: "POST", path: "/api/embeddings", handle: embedOld },
    { method: "POST", path: "/api/show", handle: show },
    {
      method: "GET",
      path: "/api/tags",
      handle: ({ server }) => json({ models: server.models.list().map(modelEntry) }),
    },
    {
      method: "GET",
      path: "/api/ps",
      handle: ({ server }) => json({ models: server.models.list().map(running) }),
    },
    {
      method: "GET",
      path: "/api/version",
      handle: ({ server }) => json({ version: server.settings.version }),
    },
  ],
};
