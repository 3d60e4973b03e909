// A model as one request sees it: work on its texts ends when the client has gone or the server ends. (Generations get
// their signal from their caller.) And as the lines of batches see it: all their calls are background work.

import type {
  EmbedOptions,
  GenerateOptions,
  Model,
  TemplateOptions,
  TokenizeOptions,
} from "../../../src/index.ts";

/** Methods that neither load a model nor keep it in memory. */
const quiet: ReadonlySet<PropertyKey> = new Set<keyof Model>(["health", "status", "unload"]);

/** The same model, with all calls as background work: clients do not wait for them. */
export function inBackground(model: Model): Model {
  const priority = "background";
  const quietly: Partial<Model> = {
    generate: (prompt, options: GenerateOptions = {}) =>
      model.generate(prompt, { ...options, priority }),
    embed: (texts, options: EmbedOptions = {}) => model.embed(texts, { ...options, priority }),
    tokenize: (text, options: TokenizeOptions = {}) =>
      model.tokenize(text, { ...options, priority }),
    countTokens: (text, options: TokenizeOptions = {}) =>
      model.countTokens(text, { ...options, priority }),
    applyTemplate: (messages, options: TemplateOptions = {}) =>
      model.applyTemplate(messages, { ...options, priority }),
  };
  return new Proxy(model, {
    get(target, name) {
      if (Object.hasOwn(quietly, name)) return quietly[name as keyof Model];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** The same model, whose work on texts ends with a signal. `touch`: called before each call. */
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
