// The start of both pages: not in a frame of another page, and with a message about content that a content security policy blocks. The
// server's own headers see to both; a proxy in front of it may drop them, or add stricter ones.

import { type ComponentChild, render } from "preact";
import { Store } from "./store.ts";

/** The content that a policy has blocked last; null: none. */
export const blocked: Store<string | null> = new Store<string | null>(null);

/** False: another page has this one in a frame, where it could be clicked without being seen. */
export function begin(page: ComponentChild): boolean {
  const unstarted = document.getElementById("unstarted");
  if (window.top !== window) {
    if (unstarted) unstarted.textContent = "Lantern does not run inside of another page.";
    return false;
  }
  unstarted?.remove();
  document.addEventListener("securitypolicyviolation", ({ disposition, effectiveDirective }) => {
    if (disposition === "enforce") blocked.set(effectiveDirective);
  });
  render(page, document.getElementById("app")!);
  return true;
}
