// Facts that renderings of a template do not show, found by texts that only such templates have: answers of several messages,
// models whose template does not write calls back, pairs of reasoning marks.

import type { AnswerFormat, CallFormat, ReasoningMarks, Wrapper } from "../../api/answer-format.ts";
import { plainJson } from "./plain-json.ts";

/** Pairs of marks around reasoning; the first pair with its end mark in the template is used. */
export const reasoningMarks: readonly ReasoningMarks[] = [
  { start: "<think>", end: "</think>" },
  { start: "[THINK]", end: "[/THINK]" },
  { start: "<|START_THINKING|>", end: "<|END_THINKING|>" },
  { start: "<seed:think>", end: "</seed:think>" },
  { start: "<mm:think>", end: "</mm:think>" },
  { start: "<|channel>thought", end: "<channel|>" },
  { start: "Here are my reasoning steps:", end: "[BEGIN FINAL RESPONSE]", isSpoken: true },
];

const empty: Wrapper = { start: "", end: "" };

const pythonCalls: CallFormat = {
  section: { start: "<|tool_call_start|>", end: "<|tool_call_end|>" },
  call: empty,
  separator: "",
  gap: "",
  form: { kind: "python" },
  endsReasoning: false,
};

const kimiCalls: CallFormat = {
  section: { start: "<|tool_calls_section_begin|>", end: "<|tool_calls_section_end|>" },
  call: { start: "<|tool_call_begin|>functions.", end: "<|tool_call_end|>" },
  separator: "",
  gap: "",
  form: {
    kind: "named",
    afterName: { first: ":", last: "<|tool_call_argument_begin|>" },
    idAfterName: undefined,
    idBeforeName: undefined,
    idPrefix: "functions.",
  },
  endsReasoning: true,
};

const granite3Calls: CallFormat = {
  section: { start: "<|tool_call|>", end: "" },
  call: empty,
  separator: "",
  gap: "",
  form: { ...plainJson, isList: true },
  endsReasoning: false,
};

interface Known {
  /** Texts of the template, all of which it has. */
  readonly has: readonly string[];
  readonly format: Partial<AnswerFormat>;
}

export const knownFormats: readonly Known[] = [
  { has: ["<|channel|>analysis", "<|message|>"], format: { frames: "harmony" } },
  { has: ["to=self<|message|>"], format: { frames: "to-header" } },
  { has: [">>>all"], format: { frames: "functionary" } },
  {
    has: ["<|tool_call_argument_begin|>"],
    format: { calls: kimiCalls, reasoning: { start: "<think>", end: "</think>" } },
  },
  { has: ["<|tool_list_start|>"], format: { calls: pythonCalls } },
  { has: ["<|tool_call_start|>"], format: { calls: pythonCalls } },
  { has: ["List of tools: ["], format: { calls: pythonCalls } },
  { has: ["<|tool_call|>", "<|start_of_role|>"], format: { calls: granite3Calls } },
];
