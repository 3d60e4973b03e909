// The text thread's side of the RPC: opens the tokenizer and the template itself, and answers the requests that
// text-desk.ts sends here instead of to the engine's thread.

import type { Check } from "../base/check.ts";
import { errorToFacts } from "../base/error-facts.ts";
import { AbortedError, DisposedError } from "../base/errors.ts";
import type { EnginePort } from "../platform/platform.ts";
import { schemaOptions } from "./grammars.ts";
import {
  ABORT_FLAGS,
  BEATS,
  type FromEngine,
  type TextMethods,
  type TextRequest,
  type ToText,
} from "./protocol.ts";
import {
  answerFormatOf,
  promptTokens,
  renderMessages,
  type TextSide,
  tokenList,
  tokenPieces,
} from "./text-work.ts";

type TextMethod = keyof TextMethods;
type Handler<M extends TextMethod> = (
  params: TextMethods[M]["params"],
  check: Check,
) => Promise<TextMethods[M]["result"]> | TextMethods[M]["result"];

/** Serves one model's texts on this thread until it is terminated. */
export function serveText(
  port: EnginePort,
  load: (request: TextRequest) => Promise<TextSide>,
): void {
  let loaded: TextSide | undefined;
  const side = (): TextSide => {
    if (!loaded) throw new DisposedError("the model");
    return loaded;
  };
  const handlers: { readonly [M in TextMethod]: Handler<M> } = {
    open: async (request) => {
      loaded = await load(request);
      return loaded.tokenizer.fingerprint;
    },
    promptTokens: ({ prompt, limit }, check) =>
      tokenList(promptTokens(side(), prompt, check), limit),
    detokenize: ({ ids, special }) => side().tokenizer.decode(Array.from(ids), { special }),
    pieces: ({ ids }) => tokenPieces(side(), ids),
    answerFormat: () => answerFormatOf(side()),
    compileProgram: async ({ source }) => {
      const { compileProgram } = await import("../grammar/program.ts");
      const { sourceOfText } = await import("../grammar/source.ts");
      return compileProgram(sourceOfText(source), side().tokenizer, schemaOptions);
    },
    applyTemplate: ({ messages, options }, check) =>
      renderMessages(side(), messages, options, check),
    dispose: () => undefined,
  };
  let flags: Int32Array | undefined;
  const beat = (): void => {
    if (flags) Atomics.add(flags, BEATS, 1);
  };
  const answer = async <M extends TextMethod>(
    id: number,
    method: M,
    params: TextMethods[M]["params"],
    aborted: boolean,
  ): Promise<FromEngine> => {
    // No message comes in during work on a text, but the abort flag is seen.
    const check = (): void => {
      beat();
      const isStopped = aborted || (flags && Atomics.load(flags, id % ABORT_FLAGS) === id);
      if (isStopped) throw new AbortedError("the request");
    };
    try {
      check();
      const handler = handlers[method] as Handler<M>;
      return { id, kind: "result", result: await handler(params, check) };
    } catch (error) {
      return { id, kind: "error", error: errorToFacts(error) };
    }
  };
  port.onMessage((message) => {
    const request = message as ToText;
    beat();
    if (request.method === "share") flags = request.flags;
    if (request.method === "ping") port.post({ id: 0, kind: "pong" });
    if (request.method === "abort" || request.method === "share" || request.method === "ping") {
      return; // the aborted request was already answered, or has seen its flag
    }
    const { id, method, params, aborted } = request;
    void answer(id, method, params, aborted).then((reply) => {
      port.post(reply);
      if (method === "dispose") port.close();
    });
  });
}
