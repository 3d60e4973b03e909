// A model on the GPU: the result of the backend's prepare() (webgpu.ts), for its batches (batch-runner.ts).

import type { BatchArea } from "./batch-area.ts";
import type { BatchTimes } from "./batch-times.ts";
import type { Buffers, Layout } from "./buffers.ts";
import type { BatchCommands } from "./commands.ts";
import type { HostExperts } from "./experts/host-experts.ts";
import type { Lookahead } from "./lookahead.ts";
import type { Program } from "./program.ts";
import type { ReadOut } from "./read-out.ts";
import type { SlotPlaces } from "./slot-places.ts";
import type { HostRows } from "./stream/host-rows.ts";
import type { WeightStream } from "./stream/weight-stream.ts";
import type { Uploader } from "./upload.ts";

export interface Prepared {
  readonly layout: Layout;
  buffers: Buffers;
  program: Program;
  readonly uploader: Uploader;
  readonly area: BatchArea;
  commands: BatchCommands;
  /** Recorded times; undefined: no profile is wanted. */
  times: BatchTimes | undefined;
  readonly out: ReadOut;
  lookahead: Lookahead;
  /** The GPU's slots of recurrent state. */
  readonly places: SlotPlaces;
  readonly experts: HostExperts;
  /** Matrices and rows that come from the host for each batch; undefined: none do. */
  readonly stream?: { readonly weights: WeightStream; readonly rows: HostRows } | undefined;
  /** Routes of a batch: [maxTokens, cols]. */
  readonly routes: Float32Array;
  /**
   * When the GPU has copied the cache that grew last. Until then the old one is in use: growths that come faster than that would hold any number of
   * caches, until there is no memory left, or no more mappings (65,530 in a process on Linux).
   */
  moved?: Promise<void>;
}
