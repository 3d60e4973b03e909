// "2/3": which of several sibling messages is shown, with arrows to the others.

import type { JSX } from "preact";
import type { Message } from "../api-types.ts";
import { siblings, type Tree } from "../state/tree.ts";
import { Icon } from "./icon.tsx";

interface Props {
  tree: Tree;
  message: Message;
  disabled: boolean;
  onPick(id: string): void;
}

export function BranchSwitcher({ tree, message, disabled, onPick }: Props): JSX.Element | null {
  const all = siblings(tree, message);
  if (all.length < 2) return null;
  const at = all.findIndex(({ id }) => id === message.id);
  const arrow = (name: "left" | "right", label: string, to: Message | undefined): JSX.Element => (
    <button
      type="button"
      class="quiet"
      aria-label={label}
      title={label}
      disabled={disabled || !to}
      onClick={() => to && onPick(to.id)}
    >
      <Icon name={name} />
    </button>
  );
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for forms
    <span class="branches" role="group" aria-label={`Version ${at + 1} of ${all.length}`}>
      {arrow("left", "Previous version", all[at - 1])}
      <span class="branch-count">
        {at + 1}/{all.length}
      </span>
      {arrow("right", "Next version", all[at + 1])}
    </span>
  );
}
