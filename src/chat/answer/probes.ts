// Conversations that a chat template is tried with, so that its rendering shows how the model writes answers. Names, keys and
// values are words that no template has of its own, so their positions in the text are certain.

import type { ChatTemplate, TemplateMessage } from "../template.ts";

const QUESTION = "zqQuestion";
export const CONTENT = "zqContent";
export const REASONING = "zqReasoning";
export const FIRST = {
  name: "zq_first",
  id: "zqcall001",
  textKey: "zq_text",
  text: "zqValue",
  numberKey: "zq_number",
  number: 471100,
} as const;
export const SECOND = { name: "zq_second", id: "zqcall002", numberKey: "zq_count" } as const;

const schema = (properties: object): object => ({ type: "object", properties, required: [] });
const described = (type: string): object => ({ type, description: "A value." });
const tool = (name: string, properties: object): object => ({
  type: "function",
  function: { name, description: "A tool.", parameters: schema(properties) },
});

const tools = [
  tool(FIRST.name, {
    [FIRST.textKey]: described("string"),
    [FIRST.numberKey]: described("integer"),
  }),
  tool(SECOND.name, { [SECOND.numberKey]: described("integer") }),
];

const call = (name: string, id: string, values: object, isText: boolean): object => ({
  id,
  type: "function",
  function: { name, arguments: isText ? JSON.stringify(values) : values },
});

const firstCall = (isText: boolean): object =>
  call(
    FIRST.name,
    FIRST.id,
    { [FIRST.textKey]: FIRST.text, [FIRST.numberKey]: FIRST.number },
    isText,
  );
const secondCall = (isText: boolean): object =>
  call(SECOND.name, SECOND.id, { [SECOND.numberKey]: 42 }, isText);

/** Turns of the assistant as the template writes them, from the end of the question on; undefined: the template refuses. */
export interface Probes {
  /** The end of the prompt, at which the model is asked to write, with reasoning and without. */
  readonly prompt: string | undefined;
  readonly promptWithout: string | undefined;
  readonly content: string | undefined;
  readonly reasoning: string | undefined;
  readonly oneCall: string | undefined;
  readonly contentAndCall: string | undefined;
  readonly twoCalls: string | undefined;
}

export function probe(template: ChatTemplate): Probes {
  const user = { role: "user", content: QUESTION };
  const turn = (answer: object | undefined, more: object = {}): string | undefined => {
    const messages = [user, ...(answer === undefined ? [] : [answer])] as TemplateMessage[];
    let text: string;
    try {
      text = template.render(messages, { tools, now: new Date(0), ...more }).text;
    } catch {
      return undefined;
    }
    const at = text.lastIndexOf(QUESTION);
    return at < 0 ? undefined : text.slice(at + QUESTION.length);
  };
  const role = "assistant";
  const withCalls = (isText: boolean, content: string, count: number): string | undefined => {
    const tool_calls = [firstCall(isText), secondCall(isText)].slice(0, count);
    const text = turn({ role, content, tool_calls });
    return text?.includes(FIRST.name) ? text : undefined;
  };
  // Most templates want arguments as an object, some as text: then an object would not be there, or twice in quotes.
  const isGood = (text: string | undefined): boolean =>
    text?.includes(FIRST.text) === true && !text.includes(`\\"${FIRST.textKey}`);
  const isText = !isGood(withCalls(false, "", 1)) && isGood(withCalls(true, "", 1));
  return {
    prompt: turn(undefined, { addGenerationPrompt: true }),
    promptWithout: turn(undefined, {
      addGenerationPrompt: true,
      extra: { enable_thinking: false, thinking: false },
    }),
    content: turn({ role, content: CONTENT }),
    reasoning: turn({
      role,
      content: CONTENT,
      reasoning_content: REASONING,
      reasoning: REASONING,
      thinking: REASONING,
    }),
    oneCall: withCalls(isText, "", 1),
    contentAndCall: withCalls(isText, CONTENT, 1),
    twoCalls: withCalls(isText, "", 2),
  };
}
