// The format of a model's answers, derived from its chat template: from its renderings of probes (probes.ts), and for the rest from
// texts that only such templates have (known.ts).

import type { AnswerFormat, ReasoningMarks, Wrapper } from "../../api/answer-format.ts";
import type { ChatTemplate } from "../template.ts";
import { deriveCalls } from "./derive-calls.ts";
import { knownFormats, reasoningMarks } from "./known.ts";
import { CONTENT, FIRST, type Probes, probe, REASONING } from "./probes.ts";

export function deriveAnswerFormat(template: ChatTemplate): AnswerFormat {
  const probes = probe(template);
  const { source } = template;
  const known: Partial<AnswerFormat> = {};
  for (const { has, format } of knownFormats) {
    const isIt = has.every((text) => source.includes(text));
    if (isIt) Object.assign(known, { ...format, ...known });
  }
  const reasoning = reasoningOf(probes, source) ?? known.reasoning;
  const content = contentOf(probes, reasoning);
  const derived = known.calls ?? deriveCalls(probes, reasoning, content);
  const calls =
    derived?.form.kind === "tagged" && source.includes("<![CDATA[")
      ? { ...derived, form: { ...derived.form, hasCdata: true } }
      : derived;
  return { reasoning, content, calls, turnEnds: turnEndsOf(probes, content), frames: known.frames };
}

/** Marks around reasoning, as history shows them; else as the prompt opens them; else as the template mentions them. */
function reasoningOf({ reasoning, prompt }: Probes, source: string): ReasoningMarks | undefined {
  const spoken = reasoningMarks.find(({ end, isSpoken }) => isSpoken && source.includes(end));
  if (spoken !== undefined) return spoken;
  const at = reasoning?.indexOf(REASONING) ?? -1;
  const to = at < 0 ? -1 : reasoning!.indexOf(CONTENT, at);
  if (to > at) {
    const end = firstTag(reasoning!.slice(at + REASONING.length, to));
    const start = end === undefined ? undefined : mirrored(reasoning!.slice(0, at), end);
    if (end !== undefined && start !== undefined) return { start, end };
  }
  const opened = reasoningMarks.find(({ start }) => prompt?.trimEnd().endsWith(start));
  return opened ?? reasoningMarks.find(({ end }) => source.includes(end));
}

/** "</think>", "<|close|>think<|sep|>": the first mark of a text. */
function firstTag(text: string): string | undefined {
  const tag = /^\s*(<\|close\|>\w+<\|sep\|>|<[^<>]*>|\[[^[\]]*\])/.exec(text)?.[1];
  return tag;
}

const mirrors: readonly (readonly [RegExp, string])[] = [
  [/^<\//, "<"],
  [/^\[\//, "["],
  [/^<\|close\|>/, "<|open|>"],
  [/END_/, "START_"],
];

/** The opening mark that matches `end`, if `text` has it. */
function mirrored(text: string, end: string): string | undefined {
  for (const [closing, opening] of mirrors) {
    const start = end.replace(closing, opening);
    if (start !== end && text.includes(start)) return start;
  }
  // Other pairs: the last tag before the reasoning.
  return /(<[^<>]*>|\[[^[\]]*\])\w*\s*$/.exec(text)?.[0].trim();
}

/** Marks around plain text: the text between the end of the prompt (or of reasoning) and the content. */
function contentOf(probes: Probes, reasoning: Wrapper | undefined): Wrapper | undefined {
  const shown = probes.reasoning?.includes(REASONING) ? probes.reasoning : probes.content;
  const at = shown?.indexOf(CONTENT) ?? -1;
  if (at < 0) return undefined;
  const head = shown!.slice(0, at);
  const end = reasoning?.end.trim() ?? "";
  const prompt =
    [probes.prompt, probes.promptWithout].find((text) => head.startsWith(text ?? " ")) ?? "";
  let start = "";
  if (end !== "" && head.includes(end)) start = head.slice(head.lastIndexOf(end) + end.length);
  else if (prompt !== "") start = head.slice(prompt.length);
  start = start.trim();
  if (start === "" || !/[<[]/.test(start)) return undefined;
  const rest = shown!.slice(at + CONTENT.length);
  const close = mirrors
    .map(([closing, opening]) => closingOf(start, closing, opening))
    .find((text) => text !== undefined && rest.includes(text));
  return { start, end: close ?? "" };
}

function closingOf(start: string, closing: RegExp, opening: string): string | undefined {
  const plain = closing.source.replace(/^\^/, "").replaceAll("\\", "");
  return start.includes(opening) ? start.replace(opening, plain) : undefined;
}

/** The first mark after plain text. */
function turnEndsOf({ content }: Probes, wrapper: Wrapper | undefined): string[] {
  const at = content?.indexOf(CONTENT) ?? -1;
  if (at < 0) return [];
  let rest = content!.slice(at + CONTENT.length);
  if (wrapper !== undefined && wrapper.end !== "") {
    const end = rest.indexOf(wrapper.end);
    if (end >= 0) rest = rest.slice(end + wrapper.end.length);
  }
  const tag = firstTag(rest);
  return tag === undefined || tag.includes(FIRST.name) ? [] : [tag];
}
