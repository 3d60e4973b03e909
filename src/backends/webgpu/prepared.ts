// A model on the GPU: what prepare() of the backend (webgpu.ts) makes, and what its batches (batch-runner.ts) use.

import type { BatchArea } from "./batch-area.ts";
import type { BatchTimes } from "./batch-times.ts";
import type { Buffers, Layout } from "./buffers.ts";
import type { BatchCommands } from "./commands.ts";
import type { HostExperts } from "./experts/host-experts.ts";
import type { Flight } from "./flight.ts";
import type { Program } from "./program.ts";
import type { ReadOut } from "./read-out.ts";
import type { SlotPlaces } from "./slot-places.ts";
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
  flight: Flight;
  /** Of recurrent state. */
  readonly places: SlotPlaces;
  readonly experts: HostExperts;
  /** Routes of a batch: [maxTokens, cols]. */
  readonly routes: Float32Array;
  /**
   * When the GPU has copied the cache that grew last. Until then the old one is in use: growths that come faster than that would hold any number of
   * caches, until there is no memory left, or no more mappings (65,530 in a process on Linux).
   */
  moved?: Promise<void>;
}
