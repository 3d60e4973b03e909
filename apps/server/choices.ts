// Several answers to one request (`n`): separate generations that run side by side, with their tokens in one stream.

import type { GenerationResult, TokenEvent } from "../../src/index.ts";
import { type Completion, type CompletionRequest, startCompletion } from "./completion.ts";
import type { Call } from "./route.ts";
import { choiceOptions } from "./sampling-fields.ts";

/** A token of one of the choices, or its end. */
export type ChoiceEvent =
  | { index: number; slot: number; token: TokenEvent }
  | { index: number; slot: number; result: GenerationResult };

/**
 * Starts one generation per prompt and choice. It resolves when the first is admitted, so that a full server can still
 * send an error status; the others follow as sequences become free. `slot` is for the first: the others run beside it.
 */
export async function startChoices(
  call: Call,
  requests: readonly CompletionRequest[],
  n: number,
  slot?: number,
): Promise<AsyncGenerator<ChoiceEvent>> {
  const all = requests.flatMap((request) =>
    Array.from({ length: n }, (_, at) => ({
      ...request,
      options: choiceOptions(request.options, at),
    })),
  );
  call.server.queue.checkCapacity(call.client, all.length);
  const leave = new AbortController();
  const own = { ...call, signal: AbortSignal.any([call.signal, leave.signal]) };
  const started = all.map((request, at) =>
    startCompletion(own, at === 0 ? { ...request, slot } : request),
  );
  for (const completion of started) completion.catch(() => {}); // reported where the events are read
  try {
    await Promise.race(started);
  } catch (error) {
    leave.abort();
    throw error;
  }
  return mergeChoices(started, leave);
}

/** Events of all choices, as they come. */
async function* mergeChoices(
  started: readonly Promise<Completion>[],
  leave: AbortController,
): AsyncGenerator<ChoiceEvent> {
  try {
    const streams = started.map((completion, index) => choiceEvents(completion, index));
    const next = (at: number) => {
      const coming = streams[at]!.next().then((step) => ({ at, step }));
      coming.catch(() => {}); // if several fail, the first error is reported
      return coming;
    };
    const pending = new Map(streams.map((_, at) => [at, next(at)]));
    while (pending.size > 0) {
      const { at, step } = await Promise.race(pending.values());
      if (step.done) pending.delete(at);
      else {
        pending.set(at, next(at));
        yield step.value;
      }
    }
  } finally {
    leave.abort(); // no effect on those that have ended
  }
}

async function* choiceEvents(
  starting: Promise<Completion>,
  index: number,
): AsyncGenerator<ChoiceEvent> {
  const completion = await starting;
  const { slot } = completion;
  for await (const token of completion.tokens()) yield { index, slot, token };
  yield { index, slot, result: await completion.result };
}

/** A choice that has ended. */
export interface EndedChoice {
  index: number;
  slot: number;
  tokens: TokenEvent[];
  result: GenerationResult;
}

/** Collects all choices in order, for an answer that is not streamed. */
export async function gatherChoices(events: AsyncIterable<ChoiceEvent>): Promise<EndedChoice[]> {
  const tokens = new Map<number, TokenEvent[]>();
  const ended: EndedChoice[] = [];
  for await (const event of events) {
    const own = tokens.get(event.index) ?? [];
    tokens.set(event.index, own);
    const { index, slot } = event;
    if ("result" in event) ended.push({ index, slot, tokens: own, result: event.result });
    else own.push(event.token);
  }
  return ended.sort((a, b) => a.index - b.index);
}
