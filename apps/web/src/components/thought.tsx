// A model's reasoning: a folded block, with the time that it took. Its text is drawn when it is opened.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Message } from "../api-types.ts";
import { grouped, msText } from "../state/format.ts";
import type { Live, Said } from "../state/live.ts";
import { splitThought, type Thought } from "../state/thought.ts";
import { Markdown } from "./markdown.tsx";

/** Answers of older versions have their reasoning in the text. */
export function thoughtOf({ text, reasoning, calls }: Said): Thought {
  if (reasoning === null) return splitThought(text);
  const isThinking = text === "" && calls.length === 0;
  return { thought: reasoning, isThinking, answer: text };
}

interface Props {
  text: string;
  /** More of it may come. */
  growing: boolean;
  cost: string;
}

export function ThoughtView({ text, growing, cost }: Props): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="thought" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {growing ? "Thinking…" : "Reasoning"}
        {cost !== "" && <span class="cost">{`${growing ? "" : ":"} ${cost}`}</span>}
      </summary>
      {isOpen && <Markdown text={text} growing={growing} />}
    </details>
  );
}

/** "3.2 s, 140 tokens"; "" if it is not known. */
export function thoughtCost({ tokens, timings }: Message, gauge: Live["gauge"]): string {
  const live = gauge?.reasoning;
  const count = tokens?.reasoning ?? live?.tokens;
  const ms = timings?.reasoningMs ?? live?.ms;
  if (count === undefined || ms === undefined) return "";
  return `${msText(ms)}, ${grouped(count)} token${count === 1 ? "" : "s"}`;
}
