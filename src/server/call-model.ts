// A model as one request sees it: work on its texts ends when the client has gone or the server ends. (Generations get
// their signal from their caller.)

import type { Model, TemplateOptions, TokenizeOptions } from "../index.ts";

/** The same model, whose work on texts ends with a signal. */
export function stoppedBy(model: Model, signal: AbortSignal): Model {
  const texts: Partial<Model> = {
    tokenize: (text, options: TokenizeOptions = {}) => model.tokenize(text, { signal, ...options }),
    countTokens: (text, options: TokenizeOptions = {}) =>
      model.countTokens(text, { signal, ...options }),
    applyTemplate: (messages, options: TemplateOptions = {}) =>
      model.applyTemplate(messages, { signal, ...options }),
  };
  return new Proxy(model, {
    get(target, name) {
      if (Object.hasOwn(texts, name)) return texts[name as keyof Model];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
