// What a generation has of the engine while it runs, and what it asks for.

import type { RestoredTokens } from "../../api/api.ts";
import type { BackgroundPlace } from "../background.ts";
import type { Owner } from "../tiers/owners.ts";
import type { AdapterUse } from "./adapter-use.ts";
import type { Amounts } from "./admission.ts";
import type { Sequence } from "./sequence.ts";

/** The sequence of a running generation, and what it has reserved. */
export interface RunningSequence {
  readonly sequence: Sequence;
  readonly promised: Amounts;
  /** What came from copies outside of the backend. */
  readonly restored?: RestoredTokens | undefined;
  /** Whether its state may be copied there. */
  readonly isStored?: boolean;
  /** Tokens whose state was moved here from another position. */
  readonly movedTokens?: number;
  /** Whether state of moved tokens is kept when it ends. Default: false. */
  readonly keepsMoved?: boolean;
  /** Of background work; undefined: it is foreground work. */
  readonly background?: BackgroundPlace | undefined;
}

/** What a sequence is opened with. */
export interface SequenceRequest {
  /** The prompt: the state of a known prefix is reused. */
  readonly tokens: readonly number[];
  /** Tokens that may be added after it. */
  readonly mayAdd: number;
  /** Whether copies of state outside of the backend are used and made. Default: false. */
  readonly isStored?: boolean;
  /** Whose text it is. Default: nobody's. */
  readonly owner?: Owner | undefined;
  /** false: all tokens are computed. Default: true. */
  readonly reuses?: boolean;
  /** Pieces of the prompt of at least so many tokens that are known at another position are moved. Default: 0, none. */
  readonly reusePieces?: number;
  /** Background work gets what foreground work leaves, and may be asked to yield unless it "stays". Default: foreground. */
  readonly background?: "yields" | "stays" | undefined;
  /** What it is computed with. Default: as the engine's default is. */
  readonly adapters?: AdapterUse | undefined;
  /** Polled while it waits for room. */
  isAborted(): boolean;
}
