// A tool call of an answer: its tool and arguments, the server that runs it, and its result. A tool that was added by
// hand is answered by hand; a tool of a server runs only after the person has confirmed it.

import type { JSX } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import type { ToolCall } from "../api-types.ts";
import { useStore } from "../state/store.ts";
import {
  type CallResult,
  loadToolServers,
  runCall,
  runningCalls,
  toolServers,
} from "../state/tool-servers.ts";
import { Icon } from "./icon.tsx";

interface Props {
  /** Its name among all calls. */
  id: string;
  call: ToolCall;
  /** The server of tools that runs it; undefined: the person gives the result. */
  server: string | undefined;
  /** It is being written. */
  growing: boolean;
  /** The answer around it is being written: it cannot be answered or run yet, since another call may follow. */
  early: boolean;
  /** The answer ended in the middle of it, or before it could be answered. */
  cutOff: boolean;
  onEnd(result: CallResult): Promise<void>;
}

export function CallCard(props: Props): JSX.Element {
  const { id, call, server, growing, early, cutOff, onEnd } = props;
  const running = useStore(runningCalls, (all) => all.get(id));
  const [isBusy, setBusy] = useState(false);
  const end = async (result: CallResult): Promise<void> => {
    setBusy(true);
    await onEnd(result).finally(() => setBusy(false));
  };
  const isOpen = call.state === "waiting";
  const waits = isOpen && !early && !cutOff;
  const unfinished = growing ? "growing" : early ? "early" : cutOff ? "cut" : "waiting";
  const shown = isOpen ? unfinished : call.state;
  const state = running ? "running" : shown;
  return (
    <article class="call" aria-label={`Call of ${call.name}`}>
      <header class="row wrap">
        <Icon name="tool" />
        <b class="call-name">{call.name}</b>
        <span class="hint">{whoRuns(call, server)}</span>
        <span class={`call-state ${state}`} role="status">
          {stateWords[state]}
          {state === "waiting" && (server === undefined ? " result" : " confirmation")}
        </span>
      </header>
      <Values text={call.arguments} />
      {waits && server === undefined && <ByHand busy={isBusy} onEnd={end} />}
      {waits && server !== undefined && (
        <Confirm
          name={call.name}
          busy={isBusy}
          running={running}
          onRun={() => void runCall(id, call, server, onEnd)}
          onEnd={end}
        />
      )}
      {call.result !== null && (
        <details class="call-result">
          <summary>{call.state === "done" ? "Result" : "Why"}</summary>
          <Values text={call.result} />
        </details>
      )}
    </article>
  );
}

type Shown = ToolCall["state"] | "growing" | "early" | "cut" | "running";

const stateWords: Readonly<Record<Shown, string>> = {
  growing: "being written",
  early: "waits for the end of the answer",
  cut: "cut off",
  waiting: "waits for your",
  running: "running",
  done: "done",
  refused: "refused",
  failed: "failed",
};

function whoRuns({ by, state }: ToolCall, server: string | undefined): string {
  if (state === "waiting") return server === undefined ? "you run it" : `${server} runs it`;
  return by === null || by === "hand" ? "answered by you" : `run by ${by}`;
}

interface ConfirmProps {
  name: string;
  busy: boolean;
  running: AbortController | undefined;
  onRun(): void;
  onEnd(result: CallResult): Promise<void>;
}

/** A tool of a server: nothing runs before this button is pressed. */
function Confirm({ name, busy, running, onRun, onEnd }: ConfirmProps): JSX.Element {
  const servers = useStore(toolServers);
  useEffect(() => {
    if (servers === undefined) void loadToolServers().catch(() => {});
  }, [servers]);
  const isGone = servers !== undefined && !servers.tools.some((tool) => tool.name === name);
  if (isGone) {
    return (
      <>
        <p class="hint">No server offers this tool now. You can type its result.</p>
        <ByHand busy={busy} onEnd={onEnd} />
      </>
    );
  }
  if (running !== undefined) {
    return (
      <div class="row wrap">
        <button type="button" disabled={busy} onClick={() => running.abort()}>
          <Icon name="stop" /> Stop the tool
        </button>
      </div>
    );
  }
  return (
    <div class="row wrap">
      <button
        type="button"
        class="primary"
        disabled={busy || servers === undefined}
        onClick={onRun}
      >
        Run it
      </button>
      <button
        type="button"
        disabled={busy}
        onClick={() => void onEnd({ state: "refused", result: null, by: "hand" })}
      >
        Refuse
      </button>
    </div>
  );
}

/** JSON with line ends, or the text unchanged. */
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
