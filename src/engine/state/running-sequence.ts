// A running sequence: the engine's resources that a generation holds while it runs, and the request for them.

import type { RestoredTokens } from "../../api/api.ts";
import type { BackgroundPlace } from "../background.ts";
import type { Owner } from "../tiers/owners.ts";
import type { AdapterUse } from "./adapter-use.ts";
import type { Amounts } from "./admission.ts";
import type { Sequence } from "./sequence.ts";

/** The sequence of a running generation, and its reservation. */
export interface RunningSequence {
  readonly sequence: Sequence;
  readonly promised: Amounts;
  /** The tokens that came from copies outside of the backend. */
  readonly restored?: RestoredTokens | undefined;
  /** Whether its state may be copied there. */
  readonly isStored?: boolean;
  /** The number of tokens with state that was moved here from another position. */
  readonly movedTokens?: number;
  /** Whether state of moved tokens is kept when it ends. Default: false. */
  readonly keepsMoved?: boolean;
  /** Its entry as background work; undefined: it is foreground work. */
  readonly background?: BackgroundPlace | undefined;
}

/** The request that a sequence is opened with. */
export interface SequenceRequest {
  /** The prompt: the state of a known prefix is reused. */
  readonly tokens: readonly number[];
  /** Tokens that may be added after it. */
  readonly mayAdd: number;
  /** Whether copies of state outside of the backend are used and made. Default: false. */
  readonly isStored?: boolean;
  /** The owner of its text. Default: no owner. */
  readonly owner?: Owner | undefined;
  /** false: all tokens are computed. Default: true. */
  readonly reuses?: boolean;
  /** The least number of tokens in a piece of the prompt that is moved here from another position. Default: 0, none is moved. */
  readonly reusePieces?: number;
  /** Background work gets what foreground work leaves, and may be asked to yield unless it "stays". Default: foreground. */
  readonly background?: "yields" | "stays" | undefined;
  /** The adapters it is computed with. Default: the engine's default. */
  readonly adapters?: AdapterUse | undefined;
  /** Polled while it waits for room. */
  isAborted(): boolean;
}
