// A table that may be wider than the screen: it scrolls on its own, also with the keyboard.

import type { ComponentChildren, JSX } from "preact";

export function ScrollX({
  label,
  children,
}: {
  label: string;
  children: ComponentChildren;
}): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached with the keyboard
    <section class="scroll-x" aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
