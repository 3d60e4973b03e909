// Keeps the end of a growing page in view while the reader is there: a reader who scrolls up is left alone until they write, and
// one who returns finds the last position again.

import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { scrolled } from "../state/places.ts";

const near = 80;

interface StickyEnd {
  /** The scrolling element. */
  readonly box: RefObject<HTMLDivElement | null>;
  /** Shows the end, and keeps it in view. */
  toEnd(): void;
}

/**
 * For the scrolling element, whose first child grows. `key`: the shown item; another one starts at its last position,
 * or at its end. `found`: a message to show instead.
 */
export function useStickToEnd(key: string | null, found: string | null = null): StickyEnd {
  const box = useRef<HTMLDivElement>(null);
  const stuck = useRef(true);
  const toEnd = (): void => {
    stuck.current = true;
    if (key !== null) scrolled.delete(key);
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  useEffect(() => {
    const scroller = box.current;
    const content = scroller?.firstElementChild;
    if (!scroller || !content) return;
    const place = key === null ? undefined : scrolled.get(key);
    stuck.current = place === undefined;
    const follow = (): void => {
      if (stuck.current) scroller.scrollTop = scroller.scrollHeight;
    };
    let before = scroller.scrollTop;
    const onScroll = (): void => {
      const { scrollHeight, scrollTop, clientHeight } = scroller;
      const isUp = scrollTop < before;
      before = scrollTop;
      // Growth since the scrolling began is no movement of the reader.
      stuck.current = scrollHeight - scrollTop - clientHeight < near || (stuck.current && !isUp);
      if (key === null) return;
      if (stuck.current) scrolled.delete(key);
      else scrolled.set(key, scroller.scrollTop);
    };
    if (place !== undefined) scroller.scrollTop = place;
    const observer = new ResizeObserver(follow);
    observer.observe(content);
    observer.observe(scroller); // the box below it may grow
    scroller.addEventListener("scroll", onScroll, { passive: true });
    follow();
    return () => {
      observer.disconnect();
      scroller.removeEventListener("scroll", onScroll);
    };
  }, [key]);
  useEffect(() => {
    if (found === null) return;
    const element = box.current?.querySelector(`[data-message="${CSS.escape(found)}"]`);
    if (!element) return;
    stuck.current = false;
    element.scrollIntoView({ block: "center" });
  }, [found]);
  return { box, toEnd };
}

/** Escape stops an answer, wherever the focus is, unless an element in front handles the key. */
export function useEscape(active: boolean, stop: () => void): void {
  const latest = useRef(stop);
  latest.current = stop;
  useEffect(() => {
    if (!active) return;
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && !event.isComposing && !document.querySelector("dialog[open]")) {
        latest.current();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [active]);
}
