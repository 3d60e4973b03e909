// The conversations of a page, newest first, with search, renaming and deleting. The search covers all of them, titles
// and texts; a hit leads to its page.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { BackupOffer, OpenSession, SearchHit } from "../api-types.ts";
import { agoText } from "../state/format.ts";
import { attempt } from "../state/notices.ts";
import { go, hrefOf } from "../state/route.ts";
import {
  deleteSession,
  isListed,
  moreSessions,
  restoreSessions,
  search,
  sessions,
} from "../state/sessions.ts";
import { useStore } from "../state/store.ts";
import { Confirm } from "./dialog.tsx";
import { Icon } from "./icon.tsx";

interface Props {
  mode: "chat" | "story";
  open: string | null;
  onRename(session: OpenSession, title: string): void;
  onPick(): void;
}

export function SessionList({ mode, open, onRename, onPick }: Props): JSX.Element {
  const {
    sessions: all,
    next,
    loaded,
    unavailable,
    notice,
    backup,
    setAside,
    query,
    hits,
  } = useStore(sessions);
  const [deleting, setDeleting] = useState<OpenSession | null>(null);
  const shown = all.filter((session) => session.mode === mode && isListed(session));
  return (
    <section class="sessions" aria-label={mode === "chat" ? "Chats" : "Stories"}>
      <a class="button new" href={hrefOf(mode)} aria-keyshortcuts="N" onClick={onPick}>
        <Icon name="plus" /> {mode === "chat" ? "New chat" : "New story"}
      </a>
      <label class="search">
        <Icon name="search" />
        <input
          type="search"
          placeholder="Search"
          aria-label="Search conversations"
          aria-keyshortcuts="/"
          value={query}
          onInput={(event) => search(event.currentTarget.value)}
        />
      </label>
      {unavailable && <p class="hint">{unavailable}</p>}
      {notice && <p class="hint">Nothing can be saved: {notice}</p>}
      {setAside > 0 && (
        <p class="hint">
          {setAside === 1
            ? "One damaged entry could not be read and was set aside. See the server's log."
            : `${setAside} damaged entries could not be read and were set aside. See the server's log.`}
        </p>
      )}
      {backup && (
        <p class="hint">
          {backupText(backup)}{" "}
          <button type="button" class="link" onClick={() => void attempt(restoreSessions)}>
            Restore
          </button>
        </p>
      )}
      {hits ? (
        <Hits hits={hits} onPick={onPick} />
      ) : (
        <ul>
          {shown.map((session) => (
            <Row
              key={session.id}
              session={session}
              open={session.id === open}
              onPick={onPick}
              onRename={(title) => onRename(session, title)}
              onDelete={() => setDeleting(session)}
            />
          ))}
          {loaded && shown.length === 0 && !unavailable && (
            <li class="hint">{mode === "chat" ? "No chats yet." : "No stories yet."}</li>
          )}
        </ul>
      )}
      {next !== null && !hits && (
        <button type="button" class="link" onClick={() => void attempt(moreSessions)}>
          Show older
        </button>
      )}
      {deleting && (
        <Confirm
          title="Delete this conversation?"
          text={`“${deleting.title || "Untitled"}” and all its versions are deleted from this machine. This cannot be undone.`}
          action="Delete"
          onClose={() => setDeleting(null)}
          onConfirm={() => {
            if (deleting.id === open) go(mode);
            void attempt(() => deleteSession(deleting.id));
          }}
        />
      )}
    </section>
  );
}

function backupText({ at, conversations, messages }: BackupOffer): string {
  const when = new Date(at).toLocaleString();
  return `The backup of ${when} has ${conversations} conversations with ${messages} messages. What is missing or damaged can be added from it; nothing is overwritten.`;
}

interface RowProps {
  session: OpenSession;
  open: boolean;
  onPick(): void;
  onRename(title: string): void;
  onDelete(): void;
}

function Row({ session, open, onPick, onRename, onDelete }: RowProps): JSX.Element {
  const [renaming, setRenaming] = useState(false);
  const title = session.title || "Untitled";
  if (renaming) {
    const done = (text: string): void => {
      setRenaming(false);
      if (text.trim() !== "" && text !== session.title) onRename(text.trim());
    };
    return (
      <li>
        <input
          class="rename"
          aria-label="Title"
          value={session.title}
          // It replaces the button that was pressed.
          autofocus
          onBlur={(event) => done(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter") done(event.currentTarget.value);
            if (event.key === "Escape") setRenaming(false);
          }}
        />
      </li>
    );
  }
  return (
    <li class={open ? "open" : ""}>
      <a
        href={hrefOf(session.mode, session.id)}
        onClick={onPick}
        aria-current={open ? "page" : undefined}
      >
        <span class="title" dir="auto">
          {title}
        </span>
        <span class="when">
          {session.private && "Private · "}
          {session.run ? "writing…" : agoText(session.changedAt, Date.now())}
        </span>
      </a>
      <span class="row-actions">
        <button
          type="button"
          class="quiet"
          aria-label={`Rename ${title}`}
          title="Rename"
          onClick={() => setRenaming(true)}
        >
          <Icon name="edit" />
        </button>
        <button
          type="button"
          class="quiet"
          aria-label={`Delete ${title}`}
          title="Delete"
          onClick={onDelete}
        >
          <Icon name="trash" />
        </button>
      </span>
    </li>
  );
}

function Hits({ hits, onPick }: { hits: readonly SearchHit[]; onPick(): void }): JSX.Element {
  if (hits.length === 0) return <p class="hint">Nothing found.</p>;
  return (
    <ul class="hits">
      {hits.map((hit) => (
        <li key={`${hit.session} ${hit.message}`}>
          <a href={hrefOf(hit.mode, hit.session, hit.message)} onClick={onPick}>
            <span class="title" dir="auto">
              {hit.title || "Untitled"}
            </span>
            <span class="snippet" dir="auto">
              {hit.snippet.map(({ text, hit: found }, at) =>
                found ? <mark key={at}>{text}</mark> : text,
              )}
            </span>
          </a>
        </li>
      ))}
    </ul>
  );
}
