// The reasoning of a model before its answer: text between <think> and </think> at the start. Some templates write the
// opening tag themselves; then only the closing one is in the answer.

export interface Thought {
  /** null: no reasoning. */
  thought: string | null;
  /** The reasoning has not ended yet. */
  isThinking: boolean;
  answer: string;
}

const opening = /^\s*<think>/;
const closing = "</think>";

export function splitThought(text: string): Thought {
  const begun = opening.exec(text);
  // Without an opening tag, the closing one is at the start of a line; elsewhere the tag is a quotation.
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
