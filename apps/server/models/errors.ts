// Errors about loading models: one that does not fit is refused with the sizes of the models in memory, one that cannot be opened
// with the reason.

import { bytesText } from "../../../src/base/byte-sizes.ts";
import { LanternError, MemoryError } from "../../../src/index.ts";
import { inPageWords } from "../../../src/options/names.ts";
import { ApiError } from "../errors.ts";
import { withoutFolders } from "./library.ts";
import type { CapacityFacts } from "./room.ts";

/** 503: there would be no room even if all that may leave had left. */
export function noCapacity(id: string, { needs, free, held, limits }: CapacityFacts): ApiError {
  const isCount = held.filter(({ isPinned }) => isPinned).length >= limits.models;
  const holders = held
    .map((one) => `${one.id} ${bytesText(one.bytes)}${one.isPinned ? " (pinned)" : ""}`)
    .join(", ");
  const heldBy = holders === "" ? "nothing else is loaded" : `held by: ${holders}`;
  const place = limits.bytes === undefined ? "" : ` of ${bytesText(limits.bytes)} for models`;
  const what = isCount
    ? `at most ${limits.models} models are loaded at a time, and all of them are pinned (${heldBy}). Unpin one, or start the server with a larger --models-max`
    : `it needs ${bytesText(needs)}, but ${bytesText(Math.max(0, free))} are free${place} (${heldBy}). Unload or unpin one, use a smaller model or context${limits.bytes === undefined ? "" : ", or start the server with a larger --models-memory"}`;
  return failure(503, "no_room", `the model ${JSON.stringify(id)} cannot be loaded: ${what}`);
}

/** Why a load failed: the reason is the engine's own, without folders. */
export function loadFailed(id: string, reason: unknown): ApiError {
  const status = reason instanceof MemoryError ? 503 : 500;
  const why = reason instanceof LanternError ? reason.message : String(reason);
  const message = `the model ${JSON.stringify(id)} could not be loaded: ${inPageWords(withoutFolders(why)).replace(/\.$/, "")}`;
  return failure(status, "model_load_failed", message, reason);
}

/** 503: the load that a request waited for was stopped. */
export function loadStopped(id: string): ApiError {
  return failure(
    503,
    "model_load_stopped",
    `loading the model ${JSON.stringify(id)} was stopped. Ask again to load it`,
  );
}

/** 500: a model that was made from another one, and is damaged or has lost the other. */
export function madeUnusable(id: string, why: string): ApiError {
  return failure(
    500,
    "model_unusable",
    `the model ${JSON.stringify(id)}, which was made with /api/create or /api/copy, cannot be used: ${why}. Make it again, or delete it with /api/delete or lantern rm`,
  );
}

/** 404: it is on this machine, but requests do not load it. */
export function notLoaded(id: string): ApiError {
  return new ApiError({
    status: 404,
    type: "invalid_request_error",
    code: "model_not_loaded",
    param: "model",
    message: `model ${JSON.stringify(id)} is on this machine but not loaded. Load it on the Models page or with POST /models/load, start the server with -m ${id}, or let requests load models with --models-autoload`,
  });
}

/** 409: it is to leave, and is in use. */
export function modelBusy(id: string): ApiError {
  return new ApiError({
    status: 409,
    type: "invalid_request_error",
    code: "model_busy",
    param: "model",
    message: `model ${JSON.stringify(id)} is answering a request. Stop it, or wait until it is answered`,
  });
}

/** 400: several models are here, and the request names none. */
export function modelMissing(ids: readonly string[]): ApiError {
  const some = ids.slice(0, 20).join(", ");
  const more = ids.length > 20 ? `, and ${ids.length - 20} more` : "";
  return new ApiError({
    status: 400,
    type: "invalid_request_error",
    code: "model_missing",
    param: "model",
    message: `"model": the request names none, expected one of ${some}${more}`,
  });
}

function failure(status: number, code: string, message: string, cause?: unknown): ApiError {
  const type = "server_error";
  const facts = { status, type, code, param: "model", message };
  return new ApiError(facts, cause instanceof Error ? { cause } : undefined);
}
