// The route: the part of the URL after "#". #/chat, #/chat/ses_1, #/chat/ses_1/msg_2, #/story, #/machine, #/limits,
// #/quantize, #/models, #/batches. The server only knows "/", so every URL can be reloaded and shared on this machine.

import { Store } from "./store.ts";

export const pages = [
  "chat",
  "story",
  "machine",
  "limits",
  "quantize",
  "models",
  "batches",
] as const;
export type PageName = (typeof pages)[number];

export interface Route {
  page: PageName;
  /** A session's id, on pages that have sessions. */
  id: string | null;
  /** A message in it, from a search. */
  message?: string;
}

function parse(hash: string): Route | undefined {
  const [, page = "", id, message] = hash.replace(/^#/, "").split("/");
  const known = pages.find((name) => name === page);
  return (
    known && {
      page: known,
      id: id ? decoded(id) : null,
      ...(message && { message: decoded(message) }),
    }
  );
}

/** The URL may have been typed. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** undefined: no page was requested; main.tsx decides by the model's abilities. */
export const route: Store<Route | undefined> = new Store(parse(location.hash));

export function hrefOf(
  page: PageName,
  id: string | null = null,
  message: string | null = null,
): string {
  const parts = [page, id, message].filter((part) => part !== null);
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(page: PageName, id: string | null = null, replace: boolean = false): void {
  const href = hrefOf(page, id);
  if (location.hash === href) return;
  if (replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  route.set(parse(location.hash));
}

export function watchRoute(): void {
  const look = (): void => route.set(parse(location.hash));
  addEventListener("hashchange", look);
  addEventListener("popstate", look);
}
