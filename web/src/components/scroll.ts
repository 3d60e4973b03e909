// Keeps the end of a growing page in sight, as long as the reader is there: who scrolls up is left alone.

import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

const near = 80;

/** For the element that scrolls; its first child is what grows. `key`: what is shown; another one starts at its end. */
export function useStickToEnd(key: string | null): RefObject<HTMLDivElement | null> {
  const box = useRef<HTMLDivElement>(null);
  // Another conversation starts at its end.
  useEffect(() => {
    const scroller = box.current;
    const content = scroller?.firstElementChild;
    if (!scroller || !content) return;
    let stuck = true;
    const toEnd = (): void => {
      if (stuck) scroller.scrollTop = scroller.scrollHeight;
    };
    const onScroll = (): void => {
      stuck = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < near;
    };
    const observer = new ResizeObserver(toEnd);
    observer.observe(content);
    observer.observe(scroller); // the box below it may grow
    scroller.addEventListener("scroll", onScroll, { passive: true });
    toEnd();
    return () => {
      observer.disconnect();
      scroller.removeEventListener("scroll", onScroll);
    };
  }, [key]);
  return box;
}

/** Escape stops an answer, wherever the focus is, unless something in front of it takes the key. */
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
