// The reason why data could not be read, and a button that tries again: for all data that a page reads seldom, or stops reading by itself.

import type { ComponentChildren, JSX } from "preact";

interface Props {
  children: ComponentChildren;
  action?: string;
  onAgain(): void;
}

export function Trouble({ children, action = "Try again", onAgain }: Props): JSX.Element {
  return (
    <p class="banner" role="alert">
      {children}{" "}
      <button type="button" class="link" onClick={onAgain}>
        {action}
      </button>
    </p>
  );
}
