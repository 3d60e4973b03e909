// Drafts for each conversation: text and attached files, and the settings of one that does not exist yet, which is
// "new". Stored in this browser, so that leaving or reloading the page loses nothing.

import type { SessionSettings } from "../api-types.ts";
import type { Attachment } from "./attachments.ts";
import { isNextPrivate } from "./private.ts";
import { Store, useStore } from "./store.ts";

export interface Draft {
  text: string;
  files: readonly Attachment[];
  /** The settings with which the next conversation begins; null: the usual ones are unchanged. */
  settings: SessionSettings | null;
  /** The size of the context into which it did not fit; null: it was not refused for that. */
  fullAt: number | null;
}

const none: Draft = { text: "", files: [], settings: null, fullAt: null };
const prefix = "lantern-draft:";
const drafts: Store<ReadonlyMap<string, Draft>> = new Store<ReadonlyMap<string, Draft>>(new Map());

export function draftKey(mode: "chat" | "story", id: string | null): string {
  return `${mode}:${id ?? "new"}`;
}

export function draftOf(key: string): Draft {
  return drafts.value.get(key) ?? remembered(key);
}

export function setDraft(key: string, change: Partial<Draft>): void {
  const next = { ...draftOf(key), ...change };
  drafts.set(new Map([...drafts.value, [key, next]]));
  const isNew = key === draftKey("chat", null) || key === draftKey("story", null);
  const isHere = here.has(key) || (isNew && isNextPrivate());
  try {
    if (isHere) localStorage.removeItem(prefix + key);
    else if (isEmpty(next) && next.settings === null && next.fullAt === null) {
      localStorage.removeItem(prefix + key);
    } else localStorage.setItem(prefix + key, JSON.stringify(next));
  } catch {
    // Storage is full or disabled: the draft lasts until the page is closed.
  }
}

function isEmpty({ text, files }: Draft): boolean {
  return text === "" && files.length === 0;
}

/** Drafts of private conversations, which last until the page is closed. */
const here = new Set<string>();

export function keepDraftHere(key: string): void {
  here.add(key);
  setDraft(key, {});
}

export function dropDraft(key: string): void {
  setDraft(key, none);
}

/** Called when the conversation was created: it has the settings now. */
export function moveDraft(from: string, to: string): void {
  const { text, files } = draftOf(from);
  setDraft(to, { text, files });
  dropDraft(from);
}

export function useDraft(key: string): Draft {
  return useStore(drafts, (all) => all.get(key) ?? remembered(key));
}

/** Whether the last message of a chat was too long for a context of this size; for a new chat, as long as its draft is not empty. */
export function useIsFull(key: string, contextSize: number): boolean {
  const isNew = key === draftKey("chat", null);
  return useStore(drafts, (all) => {
    const draft = all.get(key) ?? remembered(key);
    return draft.fullAt === contextSize && !(isNew && isEmpty(draft));
  });
}

/** Stored drafts, one object each while the page is open: a new object would render again and again. */
const known = new Map<string, Draft>();

function remembered(key: string): Draft {
  const found = known.get(key) ?? read(key);
  known.set(key, found);
  return found;
}

function read(key: string): Draft {
  try {
    const found = JSON.parse(localStorage.getItem(prefix + key) ?? "null") as Partial<Draft> | null;
    if (!found || typeof found.text !== "string") return none;
    const { text, files, settings = null, fullAt = null } = found;
    return { text, files: Array.isArray(files) ? files : [], settings, fullAt };
  } catch {
    return none; // not ours, or storage is disabled
  }
}
