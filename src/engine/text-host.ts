// The far side of the line to a model's text thread: opens the tokenizer and the template by itself, and answers what
// text-desk.ts sends here instead of to the engine's thread.

import { DisposedError } from "../base/errors.ts";
import type { EnginePort } from "../platform/platform.ts";
import {
  errorToFacts,
  type FromEngine,
  type TextMethods,
  type TextRequest,
  type ToText,
} from "./protocol.ts";
import {
  promptTokens,
  renderMessages,
  type TextSide,
  tokenList,
  tokenPieces,
} from "./text-work.ts";

type TextMethod = keyof TextMethods;
type Handler<M extends TextMethod> = (
  params: TextMethods[M]["params"],
) => Promise<TextMethods[M]["result"]> | TextMethods[M]["result"];

/** Serves one model's texts on this thread until it is ended. */
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
    promptTokens: ({ prompt, limit }) => tokenList(promptTokens(side(), prompt), limit),
    tokenize: ({ text, addBos, parseSpecial, limit }) =>
      tokenList(side().tokenizer.encode(text, { addSpecial: addBos, parseSpecial }), limit),
    detokenize: ({ ids, special }) => side().tokenizer.decode(Array.from(ids), { special }),
    pieces: ({ ids }) => tokenPieces(side(), ids),
    applyTemplate: ({ messages, options }) => renderMessages(side(), messages, options),
    dispose: () => undefined,
  };
  const answer = async <M extends TextMethod>(
    id: number,
    method: M,
    params: TextMethods[M]["params"],
  ): Promise<FromEngine> => {
    try {
      const handler = handlers[method] as Handler<M>;
      return { id, kind: "result", result: await handler(params) };
    } catch (error) {
      return { id, kind: "error", error: errorToFacts(error) };
    }
  };
  port.onMessage((message) => {
    const request = message as ToText;
    if (request.method === "abort" || request.method === "share") return; // what has begun is soon over
    void answer(request.id, request.method, request.params).then((reply) => {
      port.post(reply);
      if (request.method === "dispose") port.close();
    });
  });
}
