// What a model thinks before it answers: text between <think> and </think> at the beginning. Some templates write the
// first of the two themselves; then only the second is in the answer.

export interface Thought {
  /** null: it did not think aloud. */
  thought: string | null;
  /** It still does. */
  isThinking: boolean;
  answer: string;
}

const opening = /^\s*<think>/;
const closing = "</think>";

export function splitThought(text: string): Thought {
  const begun = opening.exec(text);
  // Without a beginning it ends on a line of its own; anywhere else the tag is quoted.
  const end = begun ? text.indexOf(closing) : text.search(/^<\/think>/m);
  if (!begun && (end < 0 || text.slice(0, end).includes("<think>"))) {
    return { thought: null, isThinking: false, answer: text };
  }
  const from = begun ? begun[0].length : 0;
  if (end < 0) return { thought: text.slice(from).trim(), isThinking: true, answer: "" };
  return {
    thought: text.slice(from, end).trim(),
    isThinking: false,
    answer: text.slice(end + closing.length).trimStart(),
  };
}
