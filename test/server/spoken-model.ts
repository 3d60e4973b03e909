// A real model that says given words: small models call no tools. Everything else is real: the template, its derived format, the
// reader, the protocol.

import { type GenerateOptions, type Generation, type Model, open } from "../../src/index.ts";
import { modelId } from "./test-server.ts";

/** In the manner of Qwen 3. */
export const qwenTemplate: string = `{%- if tools %}<|im_start|>system
Tools:{% for tool in tools %} {{ tool.function.name }}{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}
{%- for call in m.tool_calls %}{{ "\\n<tool_call>\\n" }}{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

export interface SpokenModel {
  readonly model: Model;
  /** What it says next: the first of these, then the second. The last is said again and again. */
  words: string[];
  /** The prompt of the last answer, and its options. */
  prompt: string;
  options: GenerateOptions;
  close(): Promise<void>;
}

export async function spokenModel(
  chatTemplate: string = qwenTemplate,
  location: string = modelId,
  contextSize = 2048,
): Promise<SpokenModel> {
  const real = await open(location, { threads: 1, chatTemplate, contextSize, parallel: 8 });
  const generate: Model["generate"] = (prompt, options = {}) => {
    const { grammar: _grammar, ...plain } = options;
    const generation = real.generate(prompt, { ...plain, maxTokens: 1 });
    spoken.options = options;
    const words = (spoken.words.length > 1 ? spoken.words.shift() : spoken.words[0]) ?? "";
    const pieces = words.match(/[\s\S]{1,3}/g) ?? [];
    const own: Partial<Generation> = {
      async *tokens() {
        for await (const event of generation.tokens()) if (event.progress) yield event;
        for (const text of pieces) yield { id: 1, text };
      },
      result: generation.result.then((result) => ({
        ...result,
        text: words,
        stopReason: "end" as const,
      })),
    };
    return new Proxy(generation, {
      get: (target, name) => Reflect.get(name in own ? own : target, name) as unknown,
    });
  };
  const applyTemplate: Model["applyTemplate"] = async (messages, options) => {
    const prompt = await real.applyTemplate(messages, options);
    spoken.prompt = prompt.text;
    return prompt;
  };
  const model = new Proxy(real, {
    get(target, name) {
      if (name === "generate") return generate;
      if (name === "applyTemplate") return applyTemplate;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const spoken: SpokenModel = {
    model,
    words: [],
    prompt: "",
    options: {},
    close: async () => await real.dispose(),
  };
  return spoken;
}
