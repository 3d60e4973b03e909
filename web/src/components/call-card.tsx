// A tool call of an answer: what is called with which arguments, who runs it, and its result. A tool that was added by
// hand is answered by hand; a tool of a server runs only after the person has confirmed it.

import type { JSX } from "preact";
import { useId, useState } from "preact/hooks";
import type { CallEnd, ToolCall } from "../api-types.ts";
import { Icon } from "./icon.tsx";

export type CallResult = Pick<CallEnd, "state" | "result" | "by">;

interface Props {
  call: ToolCall;
  /** It is being written. */
  growing: boolean;
  /** The answer ended in the middle of it, or before it could be answered. */
  cutOff: boolean;
  onEnd(result: CallResult): Promise<void>;
}

const stateWords: Readonly<Record<ToolCall["state"], string>> = {
  waiting: "waits for your result",
  done: "done",
  refused: "refused",
  failed: "failed",
};

export function CallCard({ call, growing, cutOff, onEnd }: Props): JSX.Element {
  const [isBusy, setBusy] = useState(false);
  const end = async (result: CallResult): Promise<void> => {
    setBusy(true);
    await onEnd(result).finally(() => setBusy(false));
  };
  const waits = call.state === "waiting" && !growing && !cutOff;
  const state = growing ? "being written" : stateWords[call.state];
  return (
    <section class="call" aria-label={`Call of ${call.name}`}>
      <header class="row wrap">
        <Icon name="tool" />
        <b class="call-name">{call.name}</b>
        <span class="hint">{whoRuns(call)}</span>
        <span class={`call-state ${cutOff ? "refused" : call.state}`}>
          {cutOff && call.state === "waiting" ? "cut off" : state}
        </span>
      </header>
      <Values text={call.arguments} />
      {waits && <ByHand busy={isBusy} onEnd={end} />}
      {call.result !== null && (
        <details class="call-result">
          <summary>{call.state === "done" ? "Result" : "Why"}</summary>
          <Values text={call.result} />
        </details>
      )}
    </section>
  );
}

function whoRuns({ by, state }: ToolCall): string {
  if (by === null || by === "hand") return state === "waiting" ? "you run it" : "answered by you";
  return `run by ${by}`;
}

/** JSON with line ends, or the text as it is. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Values({ text }: { text: string }): JSX.Element | null {
  if (text === "") return null;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: long values are scrolled with the keyboard, too
    <pre tabIndex={0}>
      <code>{pretty(text)}</code>
    </pre>
  );
}

interface ByHandProps {
  busy: boolean;
  onEnd(result: CallResult): Promise<void>;
}

function ByHand({ busy, onEnd }: ByHandProps): JSX.Element {
  const [text, setText] = useState("");
  const id = useId();
  const give = (): void => void onEnd({ state: "done", result: text, by: "hand" });
  return (
    <form
      class="field"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() !== "" && !busy) give();
      }}
    >
      <label class="field-label" for={id}>
        Result
      </label>
      <textarea
        id={id}
        rows={2}
        dir="auto"
        placeholder="What the tool answers: text or JSON"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.currentTarget.form?.requestSubmit();
          }
        }}
      />
      <div class="row wrap">
        <button type="submit" class="primary" disabled={busy || text.trim() === ""}>
          Give this result
        </button>
        <button
          type="button"
          disabled={busy}
          onClick={() => void onEnd({ state: "refused", result: text.trim() || null, by: "hand" })}
        >
          Refuse
        </button>
      </div>
    </form>
  );
}
