// A model as one request sees it: work on its texts ends when the client has gone or the server ends. (Generations get
// their signal from their caller.)

import type { Model, TemplateOptions, TokenizeOptions } from "../index.ts";

/** What neither loads a model nor keeps it in memory. */
const quiet: ReadonlySet<PropertyKey> = new Set<keyof Model>(["health", "status", "unload"]);

/** The same model, whose work on texts ends with a signal. `touch`: called before it does anything. */
export function stoppedBy(model: Model, signal: AbortSignal, touch: () => void): Model {
  const texts: Partial<Model> = {
    tokenize: (text, options: TokenizeOptions = {}) => model.tokenize(text, { signal, ...options }),
    countTokens: (text, options: TokenizeOptions = {}) =>
      model.countTokens(text, { signal, ...options }),
    applyTemplate: (messages, options: TemplateOptions = {}) =>
      model.applyTemplate(messages, { signal, ...options }),
  };
  return new Proxy(model, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (!quiet.has(name)) touch();
      return Object.hasOwn(texts, name) ? texts[name as keyof Model] : value.bind(target);
    },
  });
}
