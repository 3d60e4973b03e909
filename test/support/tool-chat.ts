// A chat whose model says what a test tells it to, in the form of a template that knows tools (Hermes: JSON between <tool_call> tags).

import type {
  ChatMessage,
  GenerateOptions,
  Generation,
  GenerationResult,
} from "../../src/api/api.ts";
import { deriveAnswerFormat } from "../../src/chat/answer/derive.ts";
import { ChatTemplate } from "../../src/chat/template.ts";
import { type ChatModel, EngineChat } from "../../src/engine/chat.ts";
import { startGeneration } from "../../src/engine/generation.ts";

export const toolTemplate: string = [
  "{%- if tools %}{{- '<|im_start|>system\\nTools:' }}",
  "{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}",
  "{%- for message in messages %}",
  "{%- if message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}",
  "{%- else %}{{- '<|im_start|>' + message.role + '\\n' }}",
  "{%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}",
  "{{- message.content }}",
  "{%- for call in message.tool_calls or [] %}{{- '\\n<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}{%- endfor %}",
  "{{- '<|im_end|>\\n' }}{%- endif %}{%- endfor %}",
  "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}",
].join("");

/** What the model says; a function is asked at its turn. */
export type Line = string | ((prompt: string) => string | Promise<string>);

export const callText = (name: string, args: unknown): string =>
  `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;

export interface ScriptedChat {
  readonly chat: EngineChat;
  /** The prompts that the model got. */
  readonly prompts: string[];
  readonly options: GenerateOptions[];
}

export function scriptedChat(
  lines: readonly Line[],
  options: {
    template?: string;
    stopReason?: GenerationResult["stopReason"];
    variables?: Readonly<Record<string, unknown>>;
  } = {},
): ScriptedChat {
  const { template = toolTemplate, stopReason = "end", variables: own = {} } = options;
  const parsed = new ChatTemplate(template, { bos: "", eos: "" });
  const script = [...lines];
  const prompts: string[] = [];
  const asked: GenerateOptions[] = [];
  const model: ChatModel = {
    info: { name: "scripted", contextSize: 256, trainedContext: 4096 },
    answerFormat: async () => deriveAnswerFormat(parsed),
    applyTemplate: async (messages, { tools = [], variables = {} } = {}) =>
      parsed.render(messages, { addGenerationPrompt: true, tools, extra: variables }),
    checkGrammar: async () => [],
    saveState: () => Promise.reject(new Error("not here")),
    run(prompt, how): Generation {
      const { text } =
        prompt.kind === "text"
          ? prompt.prompt
          : parsed.render((prompt as { messages: ChatMessage[] }).messages, {
              addGenerationPrompt: true,
              extra: (prompt as { variables?: Record<string, unknown> }).variables ?? {},
            });
      prompts.push(text);
      asked.push(how);
      return startGeneration(async (emit, signal) => {
        const line = script.shift() ?? "I have nothing more to say.";
        const said = typeof line === "string" ? line : await line(text);
        let given = "";
        for (const piece of said.match(/[\s\S]{1,5}/g) ?? []) {
          if (signal.aborted) break;
          emit({ id: 1, text: piece });
          given += piece;
          await Promise.resolve();
        }
        const reason = signal.aborted ? "aborted" : stopReason;
        return {
          text: given,
          promptTokenIds: [1],
          tokenIds: [2],
          stopReason: reason,
          timings: {} as GenerationResult["timings"],
        };
      }, how.signal);
    },
  };
  return { chat: new EngineChat(model, { variables: own }), prompts, options: asked };
}
