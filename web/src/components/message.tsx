// One message of a chat: its text, what can be done with it, and the gauge of an answer. Editing makes a branch; nothing
// that was written is ever lost.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Message } from "../api-types.ts";
import type { LiveAnswer } from "../state/live.ts";
import { Store, useStore } from "../state/store.ts";
import type { Tree } from "../state/tree.ts";
import { BranchSwitcher } from "./branch-switcher.tsx";
import { CopyButton } from "./copy-button.tsx";
import { EditBox } from "./edit-box.tsx";
import { Gauge } from "./gauge.tsx";
import { Icon, type IconName } from "./icon.tsx";
import { Markdown } from "./markdown.tsx";

export interface MessageActions {
  edit(message: Message, text: string): void;
  regenerate(message: Message): void;
  goBack(message: Message): void;
  pick(id: string): void;
}

interface Props {
  message: Message;
  tree: Tree;
  live: LiveAnswer | undefined;
  isLast: boolean;
  /** An answer is being written: nothing else can be. */
  busy: boolean;
  /** The model can answer now. */
  canAnswer: boolean;
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
    <article class={`message ${message.role}`} aria-label={mine ? "You" : "Lantern"}>
      {mine ? <div class="bubble">{message.content}</div> : <Answer {...props} />}
      <Actions {...props} onEdit={() => setEditing(true)} />
    </article>
  );
}

const none = new Store({ text: "" });

function Answer({ message, live }: Props): JSX.Element {
  const streaming = message.state === "streaming";
  const now = useStore<{ text: string }>(live?.store ?? none);
  const text = streaming && live ? now.text : message.content;
  return (
    <div class="answer" aria-live={streaming ? "off" : undefined}>
      {text === "" && streaming ? <span class="caret" /> : <Markdown text={text} />}
      {ending(message) && (
        <p class={message.state === "error" ? "ending" : "hint"}>{ending(message)}</p>
      )}
      <Gauge message={message} live={live} />
    </div>
  );
}

/** How an answer ended, where that is not by itself. */
function ending({ state, stopReason, error, content }: Message): string | null {
  if (state === "error") return error ?? "The answer failed.";
  if (state === "aborted") return "Stopped. What was written is kept.";
  if (stopReason === "length") return "Ended at the length that the settings allow.";
  if (stopReason === "end" && content === "") return "The model ended without a word.";
  if (stopReason === "context") return "Ended: the model's context is full.";
  return null;
}

function Actions(props: Props & { onEdit(): void }): JSX.Element {
  const { message, tree, isLast, busy, canAnswer, actions, onEdit } = props;
  const button = (icon: IconName, label: string, onClick: () => void): JSX.Element => (
    <button
      type="button"
      class="quiet"
      title={label}
      aria-label={label}
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
      <CopyButton text={message.content} label="Copy" />
      {button("edit", "Edit", onEdit)}
      {answer && canAnswer && button("again", "Answer again", () => actions.regenerate(message))}
      {answer && !isLast && button("back", "Go back to here", () => actions.goBack(message))}
    </div>
  );
}
