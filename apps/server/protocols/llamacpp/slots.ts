// llama.cpp's GET /slots, and POST /slots/:id?action=save|restore|erase. ../slots.ts defines slots.

import * as z from "zod";
import { byName } from "../../../../src/base/by-name.ts";
import { LanternError, type ModelInfo, SourceError, UsageError } from "../../../../src/index.ts";
import { noRules, readFields } from "../../body.ts";
import type { ServedModel } from "../../context.ts";
import { ApiError, invalidRequest, notSupported, slotsBusy } from "../../errors.ts";
import { generationParams } from "../../generation-settings.ts";
import { type Call, json } from "../../route.ts";
import { isPlainFileName, type Job, type Slot } from "../../slots.ts";

export function listSlots({ server, url }: Call): Response {
  const { settings, models, slots } = server;
  if (!settings.slots) {
    throw notSupported("the server was started with --no-slots, so it does not list them");
  }
  if (url.searchParams.has("fail_on_no_slot") && slots.all.every(({ isBusy }) => isBusy)) {
    throw slotsBusy();
  }
  const infoOf = (model: string | undefined): ModelInfo | undefined =>
    models.list().find(({ id }) => model === undefined || id === model)?.model.info;
  return json(
    slots.all.map(({ id, job, isBusy, model }) => ({
      id,
      n_ctx: infoOf(model)?.contextSize,
      speculative: infoOf(model)?.speculation?.isOn ?? false,
      is_processing: isBusy,
      ...(job && taskOf(job, isBusy, infoOf(job.model))),
    })),
  );
}

/** The task of the running generation, or of the last one. */
function taskOf(job: Job, isRunning: boolean, info: ModelInfo | undefined): object {
  const { maxTokens } = job.options;
  const remain = maxTokens === undefined ? -1 : Math.max(0, maxTokens - job.generatedTokens);
  return {
    id_task: job.id,
    model: job.model,
    route: job.route,
    n_prompt_tokens: job.promptTokens,
    n_prompt_tokens_processed: job.promptTokens - job.cachedTokens,
    n_prompt_tokens_cache: job.cachedTokens,
    ...(info && { params: generationParams(job.options, info) }),
    next_token: [
      {
        has_next_token: isRunning,
        has_new_line: job.hasNewLine,
        n_remain: remain,
        n_decoded: job.generatedTokens,
      },
    ],
  };
}

const fileFields = z.object({ filename: z.string(), model: z.string().optional() });

type Action = (call: Call, slot: Slot, place: string) => Promise<object>;

const actions: Readonly<Record<string, Action>> = byName({
  save: async (call, slot, folder) => {
    const { filename } = await readFields(call, fileFields, noRules);
    const path = pathOf(folder, filename);
    return await inSlot(call, slot, async () => {
      const { id, tokens } = slot;
      if (slot.model === undefined || tokens.length === 0) {
        throw unable("save", "nothing was computed in it yet");
      }
      const { model } = await call.server.models.obtain(slot.model);
      const { signal } = call;
      const saved = await tried("save", path, model.saveState(path, { tokens, signal }));
      if (saved.tokens < tokens.length - 1) {
        call.server.log(
          `slot ${id}: ${saved.tokens} of its ${tokens.length} tokens were saved; the others have left the KV cache`,
        );
      }
      return {
        id_slot: id,
        filename,
        n_saved: saved.tokens,
        n_written: saved.bytes,
        timings: { save_ms: saved.ms },
      };
    });
  },
  restore: async (call, slot, folder) => {
    const { filename, model: asked } = await readFields(call, fileFields, noRules);
    const path = pathOf(folder, filename);
    return await inSlot(call, slot, async () => {
      const served: ServedModel = await call.server.models.obtain(asked);
      const loading = served.model.loadState(path, { signal: call.signal });
      const { tokenIds, bytes, ms } = await tried("restore", path, loading);
      Object.assign(slot, { model: served.id, tokens: tokenIds, job: undefined });
      return {
        id_slot: slot.id,
        filename,
        n_restored: tokenIds.length,
        n_read: bytes,
        timings: { restore_ms: ms },
      };
    });
  },
  erase: async (call, slot) =>
    await inSlot(call, slot, async () => {
      const { tokens, model } = slot;
      const served = model === undefined ? undefined : call.server.models.lookUp(model);
      if (tokens.length > 0) await served?.model.forgetState(tokens);
      Object.assign(slot, { tokens: [], model: undefined, job: undefined });
      return { id_slot: slot.id, n_erased: tokens.length };
    }),
});

export async function slotAction(call: Call): Promise<Response> {
  const { slotSavePath } = call.server.settings;
  if (slotSavePath === undefined) {
    throw notSupported(
      "This server does not support slots action. Start it with `--slot-save-path`",
    );
  }
  const id = call.params.id ?? "";
  if (!/^\d{1,9}$/.test(id)) throw invalidRequest("Invalid slot ID", "id_slot");
  const slot = call.server.slots.at(Number(id));
  const name = call.url.searchParams.get("action") ?? "";
  const action = actions[name];
  if (!action) {
    throw invalidRequest("Invalid action: expected save, restore or erase", "action");
  }
  return json(await action(call, slot, slotSavePath));
}

/** Runs `act` while the slot is idle and kept from new requests. */
async function inSlot(call: Call, slot: Slot, act: () => Promise<object>): Promise<object> {
  const { slots } = call.server;
  for (;;) {
    await slots.idle(slot.id, call.signal);
    if (slots.claim(slot.id, { model: "", tokens: [] })) break;
  }
  try {
    return await act();
  } finally {
    slots.release(slot);
  }
}

function pathOf(folder: string, filename: string): string {
  if (!isPlainFileName(filename)) {
    throw invalidRequest("Invalid filename: expected a plain name, without folders", "filename");
  }
  return `${folder.replace(/\/$/, "")}/${filename}`;
}

/** Errors of a file are the client's; all others are errors of the server. */
async function tried<T>(what: "save" | "restore", path: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ApiError || !(error instanceof LanternError)) throw error;
    if (!(error instanceof SourceError || error instanceof UsageError)) throw error;
    // A client must not learn the folder's path.
    throw unable(what, error.message.replaceAll(path, path.replace(/^.*\//, "")));
  }
}

function unable(what: "save" | "restore", why: string): ApiError {
  return invalidRequest(`Unable to ${what} slot: ${why}`, "filename");
}
