// Errors of a request, and the shape that each family of clients expects. No other file turns an error into a status
// and a body: routes throw, app.ts and the streams call `describeError`.
//
// An error that is not a LanternError is a bug of ours: it is logged, and the client learns no details.

import { byName } from "../../src/base/by-name.ts";
import { type ContextCapacity, contextAdvice } from "../../src/base/context-advice.ts";
import {
  DeviceLostError,
  type ErrorCode,
  HangError,
  LanternError,
  OptionError,
  RestartingError,
} from "../../src/index.ts";
import { fieldOf, inPageWords } from "../../src/options/names.ts";
import { withoutFolders } from "./models/library.ts";

/** The facts of an error from which every client's shape is made. */
export interface ApiErrorFacts {
  status: number;
  /** OpenAI's `type`. */
  type: string;
  /** OpenAI's `code`: stable, for programs. */
  code: string | null;
  /** The field of the request that is wrong. */
  param: string | null;
  message: string;
  retryAfterSeconds?: number;
  /** More fields of OpenAI's and llama.cpp's error object. */
  more?: Readonly<Record<string, unknown>>;
}

/** A refused request, with everything that its response needs. */
export class ApiError extends LanternError {
  override name: string = "ApiError";
  readonly facts: ApiErrorFacts;

  constructor(facts: ApiErrorFacts, options?: ErrorOptions) {
    super("usage", facts.message, options);
    this.facts = facts;
  }
}

const invalid = "invalid_request_error";

/** The retry-after of a full server: a short guess. */
const retryAfterSeconds = 2;

/** 400: the request is wrong; `param` names the field. */
export function invalidRequest(
  message: string,
  param: string | null = null,
  code: string | null = null,
): ApiError {
  return new ApiError({ status: 400, type: invalid, code, param, message });
}

/** 400: a known field that this server does not support. */
export function unsupportedField(param: string, why: string): ApiError {
  return invalidRequest(`"${param}" is not supported: ${why}`, param, "unsupported_parameter");
}

const threadCode = "thread_unsupported_request";

/** 400: Anthropic's client then sends the whole conversation instead. */
export function noThreads(): ApiError {
  const message = '"thread" is not supported: conversations are not stored. Send all messages';
  return invalidRequest(message, "thread", threadCode);
}

/** 400: the prompt does not fit; llama.cpp's type and numbers, OpenAI's code. Prompts are never truncated. */
export function contextExceeded(
  promptTokens: number,
  room: ContextCapacity,
  param: string,
  qualifier: "" | "at least " = "",
): ApiError {
  const { contextSize } = room;
  const isInput = param === "input";
  const what = isInput
    ? `the input (${qualifier}${promptTokens} tokens) is too large to process: the context has ${contextSize} tokens`
    : `the request (${qualifier}${promptTokens} tokens) exceeds the available context size (${contextSize} tokens, answer included)`;
  return new ApiError({
    status: 400,
    type: "exceed_context_size_error",
    code: "context_length_exceeded",
    param,
    message: `${what}. ${contextAdvice(room, "start the server with a larger -c")}. Nothing was cut`,
    more: { n_prompt_tokens: promptTokens, n_ctx: contextSize },
  });
}

/** 501: llama.cpp's server supports it, and this one does not, or not as it was started. */
export function notSupported(message: string): ApiError {
  return new ApiError({
    status: 501,
    type: "not_supported_error",
    code: "not_supported",
    param: null,
    message,
  });
}

export function notFound(
  message: string,
  param: string | null = null,
  code: string | null = null,
): ApiError {
  return new ApiError({ status: 404, type: invalid, code, param, message });
}

export function modelNotFound(asked: string, served: readonly string[]): ApiError {
  return notFound(
    `The model ${JSON.stringify(asked.slice(0, 200))} is not served here. Served: ${served.join(", ")}`,
    "model",
    "model_not_found",
  );
}

export function unauthorized(message: string): ApiError {
  return new ApiError({
    status: 401,
    type: "authentication_error",
    code: "invalid_api_key",
    param: null,
    message,
  });
}

export function forbidden(message: string): ApiError {
  return new ApiError({
    status: 403,
    type: "permission_error",
    code: "forbidden",
    param: null,
    message,
  });
}

/**
 * 403: admin rights are for this machine, and the request comes from another one, or through a proxy or a foreign
 * page.
 */
export function adminLocalOnly(): ApiError {
  return new ApiError({
    status: 403,
    type: "permission_error",
    code: "admin_local_only",
    param: null,
    message:
      "models and conversations can be managed only on the machine that runs this server, in its web app. Start it with --admin-key KEY to allow it from other machines, with that key",
  });
}

/** 401: the secret for admin rights is missing or wrong. */
export function adminRefused(needed: "key" | "token", isMissing: boolean): ApiError {
  const messages = {
    key: isMissing
      ? "this needs the admin key that the server was started with (--admin-key, --admin-key-file or LANTERN_ADMIN_KEY); an API key is not enough. Send it as Authorization: Bearer KEY"
      : "the admin key is wrong. Send the one that the server was started with (--admin-key, --admin-key-file or LANTERN_ADMIN_KEY); an API key is not enough",
    token: isMissing
      ? "this needs the server's token, which is in the address that the server printed when it started: ...?token=TOKEN. Open that address, or send the token as Authorization: Bearer TOKEN. A server that was started with --no-token needs no token"
      : "the token is wrong: it was replaced (--new-token), or it is that of another server. The right one is in the address that the server prints: ...?token=TOKEN. Open that address, or send the token as Authorization: Bearer TOKEN",
  };
  return new ApiError({
    status: 401,
    type: "authentication_error",
    code: `admin_${needed}_${isMissing ? "missing" : "wrong"}`,
    param: null,
    message: messages[needed],
  });
}

/** 413: the body is larger than the server accepts. */
export function bodyTooLarge(limitBytes: number): ApiError {
  return new ApiError({
    status: 413,
    type: invalid,
    code: "request_too_large",
    param: null,
    message: `the request body is larger than ${limitBytes} bytes. Send less, or start the server with a larger --max-body`,
  });
}

/** 429: too many requests run and wait. */
export function queueFull(running: number, waiting: number): ApiError {
  return new ApiError({
    status: 429,
    type: "rate_limit_error",
    code: "queue_full",
    param: null,
    message: `the server is full (requests running: ${running}, waiting: ${waiting}). Try again in ${retryAfterSeconds} s, or start the server with a larger --parallel or --queue`,
    retryAfterSeconds,
  });
}

/** 400: more answers at once than even an idle server can run; waiting would not help. */
export function tooManyChoices(count: number, room: number): ApiError {
  return invalidRequest(
    `"n": the request asks for ${count} answers at once, but the server has room for ${room}. Ask for fewer answers or prompts, or start the server with a larger --queue`,
    "n",
    "too_many_choices",
  );
}

/** 503: running generations use all of the model's KV cache. */
export function cacheFull(): ApiError {
  return new ApiError({
    status: 503,
    type: "server_error",
    code: "kv_cache_full",
    param: null,
    message:
      "the model's KV cache is full of running generations. Try again later, or start the server with a smaller --parallel",
    retryAfterSeconds,
  });
}

/** 503: a client asked not to wait, and all slots are taken. */
export function slotsBusy(): ApiError {
  return new ApiError({
    status: 503,
    type: "unavailable_error",
    code: "no_slot",
    param: null,
    message: "no slot is free: all of them are answering requests",
    retryAfterSeconds,
  });
}

/** 503: the server is stopping. */
export function stopping(): ApiError {
  return new ApiError({
    status: 503,
    type: "server_error",
    code: "server_stopping",
    param: null,
    message: "the server is stopping, and the request was not finished",
    retryAfterSeconds: 5,
  });
}

/** Requests that Node's HTTP parser could not read, by its code; any other code is a 400. */
const brokenRequests: Readonly<Record<string, { status: number; message: string }>> = byName({
  HPE_HEADER_OVERFLOW: { status: 431, message: "the request's headers are too large" },
  ERR_HTTP_REQUEST_TIMEOUT: {
    status: 408,
    message:
      "the request took too long to arrive. Send it faster, or start the server with a larger --timeout",
  },
});

/** A request that could not be parsed: bytes that are not HTTP, headers or a body that do not end. */
export function brokenRequest(code: string | undefined): ApiErrorFacts {
  const { status, message } = brokenRequests[code ?? ""] ?? {
    status: 400,
    message: "the request is not HTTP, or ended before it was complete",
  };
  return { status, type: invalid, code: "broken_request", param: null, message };
}

export const unknownExpectation: ApiErrorFacts = {
  ...{ status: 417, type: invalid, code: "broken_request", param: null },
  message: "the Expect header names something that this server does not know: only 100-continue",
};

interface Mapping {
  status: number;
  type: string;
  code: string;
}

/** The engine's errors by status. The messages are the engine's own: they contain no secrets. */
const mappings: Readonly<Record<ErrorCode, Mapping>> = {
  usage: { status: 400, type: invalid, code: "invalid_value" },
  context: { status: 400, type: invalid, code: "context_length_exceeded" },
  aborted: { status: 499, type: "server_error", code: "request_aborted" },
  memory: { status: 503, type: "server_error", code: "out_of_memory" },
  disposed: { status: 503, type: "server_error", code: "model_unloaded" },
  worker: { status: 500, type: "server_error", code: "engine_failed" },
  model: { status: 500, type: "server_error", code: "model_error" },
  format: { status: 500, type: "server_error", code: "model_error" },
  source: { status: 500, type: "server_error", code: "model_error" },
};

/** Errors for clients of an engine that is lost; the server itself is alive. */
const lostEngines: readonly [
  kind: abstract new (...args: never[]) => LanternError,
  facts: Omit<ApiErrorFacts, "param">,
][] = [
  [
    RestartingError,
    {
      status: 503,
      type: "unavailable_error",
      code: "engine_restarting",
      message: "the model's engine stopped and is being restarted. Try again in a few seconds",
      retryAfterSeconds: 5,
    },
  ],
  [
    DeviceLostError,
    {
      status: 503,
      type: "unavailable_error",
      code: "gpu_lost",
      message:
        "the GPU was lost while it computed, and the request with it. Send it again: the model is opened again",
      retryAfterSeconds: 5,
    },
  ],
  [
    HangError,
    {
      status: 500,
      type: "server_error",
      code: "engine_hung",
      message:
        "the model's engine stopped responding and was restarted; the request is lost. Send it again, but the same request may stop the engine again",
    },
  ],
];

/** Any error as facts; `report` is called for bugs. */
export function describeError(error: unknown, report: (bug: unknown) => void): ApiErrorFacts {
  if (error instanceof ApiError) return error.facts;
  if (error instanceof LanternError) {
    const lost = lostEngines.find(([kind]) => error instanceof kind)?.[1];
    if (lost) {
      if (lost.status === 500) report(error);
      return { ...lost, param: null };
    }
    const { status, type, code } = mappings[error.code];
    // A dead thread's message may contain a stack or a path: that is for the log.
    if (status >= 500) report(error);
    if (error.code === "model") {
      // The model's template or tokenizer is at fault: the operator should learn the details.
      const message = `the model failed: ${inPageWords(withoutFolders(error.message))}`;
      return { status, type, code, param: null, message };
    }
    const message = status >= 500 ? `the model failed: ${error.code}` : inPageWords(error.message);
    const field = error instanceof OptionError ? fieldOf(error.facts?.option ?? "") : undefined;
    return { status, type, code, param: field ?? null, message };
  }
  report(error);
  return {
    status: 500,
    type: "server_error",
    code: "internal_error",
    param: null,
    message: "the server failed. This is a bug in Lantern; the server's log has the details",
  };
}

/** The error shape of a family of clients. */
export interface ErrorShape {
  body(facts: ApiErrorFacts): object;
}

export const openaiErrors: ErrorShape = {
  body: ({ message, type, param, code, more }) => ({
    error: { message, type, param, code, ...more },
  }),
};

const anthropicTypes: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
};

export const anthropicErrors: ErrorShape = {
  body: ({ status, message, code, more }) => ({
    type: "error",
    error: {
      type: anthropicTypes[status] ?? "api_error",
      // The words from which agents learn that they must shorten a conversation.
      message:
        code === "context_length_exceeded" && more?.n_prompt_tokens !== undefined
          ? `prompt is too long: ${more.n_prompt_tokens} tokens > ${more.n_ctx} maximum. ${message}`
          : message,
      ...(code === threadCode && { details: { error_code: code, unsupported: ["thread"] } }),
    },
  }),
};

export const ollamaErrors: ErrorShape = {
  body: ({ message }) => ({ error: message }),
};

export function errorResponse(facts: ApiErrorFacts, shape: ErrorShape): Response {
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (facts.retryAfterSeconds !== undefined) headers["retry-after"] = `${facts.retryAfterSeconds}`;
  if (facts.status === 401) headers["www-authenticate"] = "Bearer";
  return new Response(JSON.stringify(shape.body(facts)), { status: facts.status, headers });
}
