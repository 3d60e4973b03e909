// Notices that appear at the edge of the screen and go away: failures and results.

import { sentence } from "../api.ts";
import { noteFailure } from "./connection.ts";
import { Store } from "./store.ts";

export interface Notice {
  id: number;
  text: string;
  kind: "error" | "done";
}

export const notices: Store<readonly Notice[]> = new Store<readonly Notice[]>([]);

let last = 0;
const shownMs = { error: 9000, done: 3000 };

export function notify(text: string, kind: Notice["kind"] = "done"): void {
  const id = ++last;
  const others = notices.value.filter((notice) => notice.text !== text);
  notices.set([...others, { id, text, kind }].slice(-3));
  setTimeout(() => dismiss(id), shownMs[kind]);
}

export function dismiss(id: number): void {
  notices.set(notices.value.filter((notice) => notice.id !== id));
}

/** Runs a user's action; an error becomes a notice. undefined: it failed. */
export async function attempt<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (!noteFailure(error)) notify(sentence(error), "error");
    return undefined;
  }
}
