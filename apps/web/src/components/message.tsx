// One message of a chat: its text, its actions, and the gauge of an answer. Editing makes a branch; no text is ever
// lost.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { isAnswered } from "../../../sessions/calls.ts";
import type { Message, SessionTool } from "../api-types.ts";
import { splitAttachments } from "../state/attachments.ts";
import { type Live, type LiveAnswer, nothingSaid, saidIn } from "../state/live.ts";
import { Store, useStore } from "../state/store.ts";
import type { CallResult } from "../state/tool-servers.ts";
import type { Tree } from "../state/tree.ts";
import { BranchSwitcher } from "./branch-switcher.tsx";
import { CallCard } from "./call-card.tsx";
import { CopyButton } from "./copy-button.tsx";
import { EditBox } from "./edit-box.tsx";
import { Gauge } from "./gauge.tsx";
import { Icon, type IconName } from "./icon.tsx";
import { JsonView, jsonOf } from "./json-view.tsx";
import { Markdown } from "./markdown.tsx";
import { ThoughtView, thoughtCost, thoughtOf } from "./thought.tsx";

export interface MessageActions {
  edit(message: Message, text: string): void;
  regenerate(message: Message): void;
  continueAnswer(message: Message): void;
  goBack(message: Message): void;
  pick(id: string): void;
  /** Gives the result of a call; after the last one, the model answers. */
  endCall(session: string, message: Message, call: string, result: CallResult): Promise<void>;
  /** All calls have their results: the model answers. */
  answerCalls(message: Message): void;
}

interface Props {
  session: string;
  message: Message;
  tree: Tree;
  live: LiveAnswer | undefined;
  isLast: boolean;
  /** It is the result of a search. */
  found: boolean;
  /** An answer is being written, so no other can be. */
  busy: boolean;
  /** The model can answer now. */
  canAnswer: boolean;
  /** The tools of the chat, which name the servers that run calls. */
  tools: readonly SessionTool[];
  actions: MessageActions;
}

export function MessageView(props: Props): JSX.Element {
  const { message, actions } = props;
  const [editing, setEditing] = useState(false);
  const mine = message.role === "user";
  if (editing) {
    return (
      <article class={`message ${message.role}`}>
        <EditBox
          text={message.content}
          label={mine ? "Edit your message" : "Edit the answer"}
          action={mine ? "Send" : "Save"}
          onCancel={() => setEditing(false)}
          onDone={(text) => {
            setEditing(false);
            actions.edit(message, text);
          }}
        />
      </article>
    );
  }
  return (
    <article
      class={`message ${message.role} ${props.found ? "found" : ""}`}
      aria-label={mine ? "You" : "Lantern"}
      data-message={message.id}
    >
      {mine ? <Question content={message.content} /> : <Answer {...props} />}
      <Actions {...props} onEdit={() => setEditing(true)} />
    </article>
  );
}

/** A person's text, with the attached files. */
export function Question({ content }: { content: string }): JSX.Element {
  const { text, files } = splitAttachments(content);
  return (
    <>
      {text !== "" && (
        <div class="bubble" dir="auto">
          {text}
        </div>
      )}
      {files.map(({ name, text: attached }, at) => (
        <details class="attached" key={at}>
          <summary>
            <Icon name="file" /> <span class="file-name">{name}</span>
          </summary>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long files are scrolled with the keyboard, too */}
          <pre tabIndex={0}>{attached}</pre>
        </details>
      ))}
    </>
  );
}

const none = new Store<Live>({ ...nothingSaid, gauge: null, samples: [] });

function Answer({ session, message, live, tools, actions }: Props): JSX.Element {
  const streaming = message.state === "streaming";
  const now = useStore(live?.store ?? none);
  const said = streaming && live ? now : saidIn(message);
  const { thought, isThinking, answer } = thoughtOf(said);
  const { calls } = said;
  return (
    <div class="answer" aria-live={streaming ? "off" : undefined}>
      {thought !== null && thought !== "" && (
        <ThoughtView
          text={thought}
          growing={isThinking && streaming}
          cost={thoughtCost(message, now.gauge)}
        />
      )}
      {answer === "" && streaming && calls.length === 0 && <span class="caret" />}
      {answer !== "" && <AnswerText text={answer} growing={streaming && calls.length === 0} />}
      {calls.map((call, at) => (
        <CallCard
          key={call.id}
          call={call}
          server={tools.find(({ name }) => name === call.name)?.server}
          growing={streaming && at === calls.length - 1}
          early={streaming}
          cutOff={!streaming && message.state !== "complete"}
          id={`${message.id} ${call.id}`}
          onEnd={(result) => actions.endCall(session, message, call.id, result)}
        />
      ))}
      {ending(message) && (
        <p class={message.state === "error" ? "ending" : "hint"}>{ending(message)}</p>
      )}
      <Gauge message={message} live={live} />
    </div>
  );
}

function AnswerText({ text, growing }: { text: string; growing: boolean }): JSX.Element {
  if (growing && /^\s*\{/.test(text)) return <JsonView text={text} growing />;
  const json = growing ? undefined : jsonOf(text);
  if (json !== undefined) return <JsonView text={json} growing={false} />;
  return <Markdown text={text} growing={growing} />;
}

/** How an answer ended, unless it ended by itself. */
function ending({ state, stopReason, error, content, calls }: Message): string | null {
  if (state === "error") return error ?? "The answer failed.";
  if (state === "aborted") return "Stopped. The text so far is kept.";
  if (stopReason === "length")
    return "The answer reached the longest length that the settings allow.";
  if (stopReason === "end" && content === "" && calls.length === 0)
    return "The model ended its answer without writing anything.";
  if (stopReason === "context") return "The answer ended because the model's context is full.";
  return null;
}

/** It ended early, and can be continued. */
function isCutShort({ role, state, stopReason, content, reasoning }: Message): boolean {
  const isCut =
    state === "aborted" || state === "error" || stopReason === "length" || stopReason === "context";
  return role === "assistant" && (content !== "" || reasoning !== null) && isCut;
}

function Actions(props: Props & { onEdit(): void }): JSX.Element {
  const { message, tree, isLast, busy, canAnswer, actions, onEdit } = props;
  const button = (
    icon: IconName,
    label: string,
    onClick: () => void,
    key?: string,
  ): JSX.Element => (
    <button
      type="button"
      class="quiet"
      title={key === undefined ? label : `${label} (${key})`}
      aria-label={label}
      aria-keyshortcuts={key}
      disabled={busy}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
  const answer = message.role === "assistant";
  return (
    <div class={`actions ${isLast ? "shown" : ""}`}>
      <BranchSwitcher
        tree={tree}
        message={message}
        disabled={busy}
        onPick={(id) => actions.pick(id)}
      />
      {isLast && canAnswer && !busy && isCutShort(message) && (
        <button
          type="button"
          aria-keyshortcuts="C"
          title="Continue (C)"
          onClick={() => actions.continueAnswer(message)}
        >
          <Icon name="story" /> Continue
        </button>
      )}
      {isLast && canAnswer && !busy && isAnswered(message) && (
        <button
          type="button"
          aria-keyshortcuts="C"
          title="Continue (C)"
          onClick={() => actions.answerCalls(message)}
        >
          <Icon name="story" /> Continue
        </button>
      )}
      <CopyButton
        text={answer ? thoughtOf(saidIn(message)).answer : message.content}
        label="Copy"
      />
      {button("edit", "Edit", onEdit, answer ? undefined : "E")}
      {answer &&
        canAnswer &&
        button("again", "Answer again", () => actions.regenerate(message), "R")}
      {answer && !isLast && button("back", "Go back to here", () => actions.goBack(message))}
    </div>
  );
}
