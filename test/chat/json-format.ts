// Formats of answers for tests: reasoning between <think> and </think>, calls as JSON objects between marks.

import type { AnswerFormat } from "../../src/api/answer-format.ts";
import { plainJson } from "../../src/chat/answer/plain-json.ts";

export function jsonFormat(start: string, end: string, gap: string): AnswerFormat {
  return {
    reasoning: { start: "<think>", end: "</think>" },
    calls: {
      section: { start: "", end: "" },
      call: { start, end },
      separator: gap,
      gap,
      form: plainJson,
      endsReasoning: false,
    },
    turnEnds: [],
  };
}

/** Qwen's, and of many others. */
export const hermes: AnswerFormat = jsonFormat("<tool_call>\n", "\n</tool_call>", "\n");

export const marked: AnswerFormat = jsonFormat("<call>", "</call>", "");
