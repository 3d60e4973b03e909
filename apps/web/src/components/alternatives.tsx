// Continuations side by side, while they are written and until one is chosen. The others stay in the story's tree.

import type { JSX } from "preact";
import type { Message } from "../api-types.ts";
import type { LiveAnswer } from "../state/live.ts";
import { Store, useStore } from "../state/store.ts";

interface Props {
  answers: readonly Message[];
  live: ReadonlyMap<string, LiveAnswer>;
  busy: boolean;
  onChoose(id: string): void;
  onAgain(): void;
}

export function Alternatives({ answers, live, busy, onChoose, onAgain }: Props): JSX.Element {
  return (
    <section aria-label="Alternatives">
      <div class="alternatives">
        {answers.map((answer, at) => (
          <Alternative
            key={answer.id}
            answer={answer}
            live={live.get(answer.id)}
            number={at + 1}
            busy={busy}
            onChoose={onChoose}
          />
        ))}
      </div>
      {!busy && (
        <button type="button" class="link" onClick={onAgain}>
          None of these: write new ones
        </button>
      )}
    </section>
  );
}

const none = new Store({ text: "" });

interface OneProps {
  answer: Message;
  live: LiveAnswer | undefined;
  number: number;
  busy: boolean;
  onChoose(id: string): void;
}

function Alternative({ answer, live, number, busy, onChoose }: OneProps): JSX.Element {
  const now = useStore<{ text: string }>(live?.store ?? none);
  const streaming = answer.state === "streaming";
  const text = streaming && live ? now.text : answer.content;
  return (
    <article class="alternative">
      <p>
        {text.trimStart()}
        {streaming && <span class="caret" />}
      </p>
      {answer.state === "error" && <p class="ending">{answer.error}</p>}
      <button type="button" class="primary" disabled={busy} onClick={() => onChoose(answer.id)}>
        Go on with {number}
      </button>
    </article>
  );
}
