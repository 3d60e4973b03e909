// Chat templates: all real ones render; some renderings are known by heart.
// Held against: renderings written here.

import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { LanternError, ModelError, UsageError } from "../../src/base/errors.ts";
import { builtInTemplates, ChatTemplate } from "../../src/chat/template.ts";
import { describeShared, hasShared, sharedPath } from "../support/shared.ts";

const tokens = { bos: "<s>", eos: "</s>" };
const conversation = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "What is 2+2?" },
  { role: "assistant", content: "Four." },
  { role: "user", content: "And 3+3?" },
];
const withPrompt = { addGenerationPrompt: true };

function render(source: string, options: object = withPrompt, messages = conversation): string {
  return new ChatTemplate(source, tokens).render(messages, options).text;
}

describe("built-in templates", () => {
  it.each([
    [
      "chatml",
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 2+2?<|im_end|>\n" +
        "<|im_start|>assistant\nFour.<|im_end|>\n<|im_start|>user\nAnd 3+3?<|im_end|>\n<|im_start|>assistant\n",
    ],
    [
      "llama2",
      "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nWhat is 2+2? [/INST] Four. </s><s>[INST] And 3+3? [/INST]",
    ],
    [
      "zephyr",
      "<|system|>\nBe brief.</s>\n<|user|>\nWhat is 2+2?</s>\n<|assistant|>\nFour.</s>\n<|user|>\nAnd 3+3?</s>\n<|assistant|>\n",
    ],
    [
      "llama3",
      "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>" +
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is 2+2?<|eot_id|>" +
        "<|start_header_id|>assistant<|end_header_id|>\n\nFour.<|eot_id|>" +
        "<|start_header_id|>user<|end_header_id|>\n\nAnd 3+3?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ],
    [
      "command-r",
      "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be brief.<|END_OF_TURN_TOKEN|>" +
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>What is 2+2?<|END_OF_TURN_TOKEN|>" +
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Four.<|END_OF_TURN_TOKEN|>" +
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>And 3+3?<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ],
  ])("%s", (name, text) => {
    expect(render(builtInTemplates[name]!)).toBe(text);
  });

  it("are found by their own names only", () => {
    expect(Object.keys(builtInTemplates)).toEqual([
      "chatml",
      "llama2",
      "llama3",
      "zephyr",
      "tinyllama",
      "command-r",
    ]);
    expect(builtInTemplates.constructor).toBeUndefined();
  });

  it("end with the last message unless an answer is to follow", () => {
    expect(render(builtInTemplates.chatml!, {})).toMatch(/And 3\+3\?<\|im_end\|>\n$/);
  });
});

describe("what templates may use", () => {
  it("TinyLlama's own template, with its line breaks", () => {
    const source =
      "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n" +
      "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n" +
      "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n" +
      "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}";
    expect(render(source)).toBe(render(builtInTemplates.zephyr!));
  });

  it("undefined sequences are empty, as in Jinja", () => {
    expect(render("{% for tool in tools %}x{% endfor %}{{ tools | length }}")).toBe("0");
    expect(render("{% for t in tools if t.x %}x{% endfor %}{{ tools is defined }}")).toBe("False");
    const code =
      '{{ none | selectattr("a") | list | length }}{{ "ab" | length }}{{ [1,2] | join("-") }}';
    expect(render(code)).toBe("021-2");
  });

  it("tools are passed on; an empty list is none", () => {
    const source = "{{ tools is defined }}{% for tool in tools %} {{ tool.name }}{% endfor %}";
    expect(render(source, { tools: [{ name: "f" }] })).toBe("True f");
    expect(render(source, { tools: [] })).toBe("False");
  });

  it("dates in English, whatever the language of the machine", () => {
    const now = new Date(2024, 6, 6, 15, 4, 5);
    expect(render("{{ strftime_now('%d %b %Y, %A %-d %B %H:%M:%S %I%p %%x %q') }}", { now })).toBe(
      "06 Jul 2024, Saturday 6 July 15:04:05 03PM %x %q",
    );
  });

  it("today's date and thinking, unless told otherwise", () => {
    const source = "{{ date_string }} {{ enable_thinking }} {{ strftime_now is defined }}";
    const now = new Date(2024, 6, 6);
    expect(render(source, { now })).toBe("06 Jul 2024 True True");
    const extra = { date_string: "tomorrow", enable_thinking: false };
    expect(render(source, { now, extra })).toBe("tomorrow False True");
  });

  it("Python's format, extra variables, tokens", () => {
    expect(render("{{ '<{}|{1}>{{}}'.format('a', 'b') }}")).toBe("<a|b>{}");
    expect(render("{{ bos_token + mood + eos_token }}", { extra: { mood: "x" } })).toBe("<s>x</s>");
  });
});

describe("errors", () => {
  const refusing = "{{ raise_exception('only ' + messages[0].role + 's') }}";

  it("a refusal has the template's own words", () => {
    expect(() => render(refusing)).toThrow(UsageError);
    expect(() => render(refusing)).toThrow(/only systems/);
  });

  it("a template without a system role gets it with the first question", () => {
    const source =
      "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" +
      "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    expect(render(source)).toBe("[user:Be brief.\nWhat is 2+2?][assistant:Four.][user:And 3+3?]");
    expect(conversation).toHaveLength(4);
  });

  it("a template that leaves system messages out does, too", () => {
    const source =
      "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}";
    expect(render(source)).toBe("[user:Be brief.\nWhat is 2+2?][assistant:Four.][user:And 3+3?]");
  });

  it("faults are ours to report", () => {
    expect(() => new ChatTemplate("{% for %}", tokens)).toThrow(ModelError);
    expect(() => render("{{ missing + 1 }}")).toThrow(ModelError);
    expect(() => render("{{ 'x' | nofilter }}")).toThrow(LanternError);
  });
});

const files = hasShared("chat-templates")
  ? readdirSync(sharedPath("chat-templates")).filter((file) => file.endsWith(".jinja"))
  : [];

function renderFile(file: string, options: object = {}): string {
  const source = readFileSync(sharedPath(`chat-templates/${file}`), "utf8");
  return render(source, { ...withPrompt, ...options });
}

describeShared("real templates", "chat-templates", () => {
  it("are all there", () => {
    expect(files.length).toBeGreaterThanOrEqual(70);
  });

  it.each(files)("%s", (file) => {
    const text = renderFile(file);
    for (const { content } of conversation) expect(text).toContain(content);
  });

  it("Llama 3.1, literally", () => {
    const now = new Date(2024, 6, 26);
    expect(renderFile("meta-llama-Llama-3.1-8B-Instruct.jinja", { now })).toBe(
      "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" +
        "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhat is 2+2?<|eot_id|>" +
        "<|start_header_id|>assistant<|end_header_id|>\n\nFour.<|eot_id|>" +
        "<|start_header_id|>user<|end_header_id|>\n\nAnd 3+3?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    );
  });

  it.each([
    ["deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "<think>\n", "<think>\n</think>"],
    ["Qwen-Qwen3-0.6B", "assistant\n", "<think>\n\n</think>\n\n"],
    ["Qwen-QwQ-32B", "<think>\n", "<think>\n</think>"],
  ])("%s thinks, unless it is told not to", (name, thinking, silent) => {
    const file = `${name}.jinja`;
    expect(renderFile(file).endsWith(thinking)).toBe(true);
    expect(renderFile(file, { extra: { enable_thinking: false } }).endsWith(silent)).toBe(true);
  });

  it("Mistral Nemo, literally", () => {
    expect(renderFile("mistralai-Mistral-Nemo-Instruct-2407.jinja")).toBe(
      "<s>[INST]What is 2+2?[/INST]Four.</s>[INST]Be brief.\n\nAnd 3+3?[/INST]",
    );
  });
});

describeShared("minimind2-small's template", "models/minimind2-small/tokenizer_config.json", () => {
  it("is ChatML", () => {
    const path = sharedPath("models/minimind2-small/tokenizer_config.json");
    const { chat_template } = JSON.parse(readFileSync(path, "utf8")) as { chat_template: string };
    expect(render(chat_template)).toBe(render(builtInTemplates.chatml!));
  });
});
