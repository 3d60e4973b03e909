// A progress bar with a percentage.

import type { JSX } from "preact";
import { digits } from "../state/format.ts";

/** `share`: 0 to 1. */
export function Progress({ share, label }: { share: number; label: string }): JSX.Element {
  return (
    <div class="progress-row">
      <progress max="1" value={share} aria-label={label} />
      <span>{digits(Math.floor(share * 100))}%</span>
    </div>
  );
}
