// The text of a story: its pieces as one continuous text. The model's text is marked subtly; a click on a piece shows
// its actions.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Message } from "../api-types.ts";
import type { LiveAnswer } from "../state/live.ts";
import { Store, useStore } from "../state/store.ts";
import { siblings, type Tree } from "../state/tree.ts";
import { BranchSwitcher } from "./branch-switcher.tsx";

interface Props {
  pieces: readonly Message[];
  tree: Tree;
  live: ReadonlyMap<string, LiveAnswer>;
  busy: boolean;
  /** A piece from a search. */
  found: string | null;
  onEdit(message: Message): void;
  onGoBack(message: Message): void;
  onPick(id: string): void;
}

export function StoryText(props: Props): JSX.Element {
  const { pieces, tree, live, busy, found } = props;
  const [picked, setPicked] = useState<string | null>(null);
  const chosen = busy ? undefined : pieces.find(({ id }) => id === picked);
  return (
    <>
      <div class="story-text" dir="auto">
        {pieces.map((piece) => (
          <Piece
            key={piece.id}
            piece={piece}
            versions={versionsText(tree, piece)}
            found={piece.id === found}
            live={live.get(piece.id)}
            picked={piece.id === chosen?.id}
            disabled={busy}
            onPick={() => setPicked(piece.id === picked ? null : piece.id)}
          />
        ))}
      </div>
      {chosen && (
        <div class="piece-actions row wrap">
          <span class="hint">
            {chosen.role === "user"
              ? "You wrote this"
              : `${chosen.model ?? "The model"} wrote this`}
          </span>
          <BranchSwitcher tree={tree} message={chosen} disabled={busy} onPick={props.onPick} />
          <button
            type="button"
            onClick={() => {
              setPicked(null);
              props.onEdit(chosen);
            }}
          >
            Rewrite
          </button>
          {chosen.id !== pieces.at(-1)?.id && (
            <button type="button" onClick={() => props.onGoBack(chosen)}>
              Go back to here
            </button>
          )}
        </div>
      )}
    </>
  );
}

/** "2/3" if a piece has other versions. */
function versionsText(tree: Tree, piece: Message): string | undefined {
  const all = siblings(tree, piece);
  return all.length < 2 ? undefined : `${all.indexOf(piece) + 1}/${all.length}`;
}

const none = new Store({ text: "" });

interface PieceProps {
  piece: Message;
  live: LiveAnswer | undefined;
  versions: string | undefined;
  picked: boolean;
  found: boolean;
  disabled: boolean;
  onPick(): void;
}

function Piece(props: PieceProps): JSX.Element {
  const { piece, live, versions, picked, found, disabled, onPick } = props;
  const now = useStore<{ text: string }>(live?.store ?? none);
  const streaming = piece.state === "streaming";
  const text = streaming && live ? now.text : piece.content;
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onPick();
  };
  return (
    // A <button> would break lines around itself; this is part of continuous text.
    // biome-ignore lint/a11y/useSemanticElements: see above
    <span
      class={`piece ${piece.role} ${picked ? "picked" : ""} ${found ? "found" : ""}`}
      data-message={piece.id}
      data-versions={versions}
      role="button"
      tabIndex={disabled ? -1 : 0}
      aria-pressed={picked}
      aria-disabled={disabled}
      onClick={() => !disabled && onPick()}
      onKeyDown={(event) => !disabled && onKeyDown(event)}
    >
      {text}
      {streaming && <span class="caret" />}
      {piece.state === "error" && <span class="ending"> {piece.error}</span>}
    </span>
  );
}
