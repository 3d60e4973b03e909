// A model for sessions of agents: random weights, a context of 65,536 tokens and a vocabulary of the words that agent-session.ts
// writes, so that prompts of real size are computed in seconds. It says given words (spoken-model.ts).

import { tinyFile } from "../support/tiny-file.ts";
import { type SpokenModel, spokenModel } from "./spoken-model.ts";

/** The template shows tools as a real one does: whole, as JSON. */
export const agentTemplate: string = `{%- if tools %}<|im_start|>system
{%- if messages[0].role == "system" %}
{{ messages[0].content }}
{%- endif %}
# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% elif messages[0].role == "system" %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if not (loop.first and m.role == "system") %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}
{%- for call in m.tool_calls %}{{ "\\n<tool_call>\\n" }}{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}
{%- endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

export const agentContext = 65_536;

/** @param words Each becomes a token. */
export async function agentModel(
  words: readonly string[],
  contextSize: number = agentContext,
): Promise<SpokenModel> {
  const file = await tinyFile({ vocab: 0, layers: 1, ...vocabulary(words) });
  try {
    return await spokenModel(agentTemplate, file.path, contextSize);
  } finally {
    file.remove();
  }
}

/** A word is merged from its beginnings, letter by letter: each is a token, and so is each letter. */
function vocabulary(
  words: readonly string[],
): Pick<Parameters<typeof tinyFile>[0] & object, "more" | "vocab"> {
  const controls = ["<unk>", "<s>", "</s>"];
  const bytes = Array.from(
    { length: 256 },
    (_, at) => `<0x${at.toString(16).toUpperCase().padStart(2, "0")}>`,
  );
  const letters = Array.from({ length: 95 }, (_, at) =>
    String.fromCharCode(32 + at).replace(" ", "▁"),
  );
  const beginnings = words.flatMap((word) => {
    const text = `▁${word}`;
    return Array.from({ length: word.length }, (_, at) => text.slice(0, at + 2));
  });
  const tokens = [...new Set([...controls, ...bytes, ...letters, ...beginnings])];
  const special = controls.length + bytes.length;
  return {
    vocab: tokens.length,
    more: [
      ["llama.context_length", { type: "u32", value: agentContext }],
      ["tokenizer.ggml.tokens", { type: "array<string>", value: tokens }],
      ["tokenizer.ggml.scores", { type: "array<f32>", value: tokens.map((text) => text.length) }],
      [
        "tokenizer.ggml.token_type",
        {
          type: "array<i32>",
          value: tokens.map((_, at) => (at === 0 ? 2 : at < 3 ? 3 : at < special ? 6 : 1)),
        },
      ],
    ],
  };
}
