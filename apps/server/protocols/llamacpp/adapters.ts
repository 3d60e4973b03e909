// llama.cpp's GET and POST /lora-adapters: the adapters of a model, and their default scales for requests. With several
// models, ?model=NAME selects one.

import * as z from "zod";
import { messageOf } from "../../../../src/base/errors.ts";
import type { Model } from "../../../../src/index.ts";
import { readJson } from "../../body.ts";
import { invalidRequest } from "../../errors.ts";
import { type Call, json } from "../../route.ts";
import { adapterScale } from "../../sampling-fields.ts";

async function modelOf({ server, url }: Call): Promise<Model> {
  const { model } = await server.models.obtain(url.searchParams.get("model") ?? undefined);
  return model;
}

export async function listAdapters(call: Call): Promise<Response> {
  const model = await modelOf(call);
  const listed = model.adapters().map(async ({ invocationTokens, ...info }) => ({
    id: info.id,
    path: info.name, // clients do not learn paths, here as in /props
    scale: info.scale,
    task_name: info.taskName,
    prompt_prefix: info.promptPrefix,
    ...(invocationTokens && {
      alora_invocation_string: await model.detokenize(invocationTokens, { special: true }),
      alora_invocation_tokens: invocationTokens,
    }),
  }));
  return json(await Promise.all(listed));
}

const scales = z.array(adapterScale).max(256);

/** Adapters that are not named are not applied, as in llama.cpp. */
export async function setAdapters(call: Call): Promise<Response> {
  const body = scales.safeParse(await readJson(call));
  if (!body.success) {
    throw invalidRequest(
      `the body: ${messageOf(body.error)}; expected a list as [{"id": 0, "scale": 0.5}]`,
    );
  }
  const model = await modelOf(call);
  await model.setAdapters(body.data);
  return json({ success: true });
}
