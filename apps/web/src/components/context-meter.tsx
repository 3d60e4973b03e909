// The meter of the model's context: how full it is after the last answer, and the actions for a full one. Text is never
// truncated silently.

import type { JSX } from "preact";
import type { Message } from "../api-types.ts";
import { grouped } from "../state/format.ts";

interface Props {
  path: readonly Message[];
  contextSize: number | undefined;
  /** The part of a text that does not fit which the model reads; undefined: such a text is refused. */
  slides?: string | undefined;
  /** Shown while there is nothing to measure. */
  hint: string;
}

const nearlyFull = 0.85;

export function ContextMeter(props: Props): JSX.Element {
  const { path, contextSize, slides, hint } = props;
  const tokens = path.findLast((message) => message.tokens !== null)?.tokens;
  if (!tokens || contextSize === undefined) return <p class="hint meter keys">{hint}</p>;
  const used = tokens.prompt + tokens.generated;
  if (slides && (tokens.dropped ?? 0) > 0) {
    return (
      <p class="hint meter">
        The model reads {slides}: {grouped(contextSize)} tokens
      </p>
    );
  }
  if (used >= contextSize - 1 && !slides) {
    return <p class="hint meter full">The context is full: {grouped(contextSize)} tokens.</p>;
  }
  return (
    <p class={`hint meter ${!slides && used > nearlyFull * contextSize ? "full" : ""}`}>
      {grouped(used)} of {grouped(contextSize)} tokens of context
    </p>
  );
}
