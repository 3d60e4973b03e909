// Entry of every browser worker. All workers run this script and learn their job from their name; Node's threads start
// directly with the files below.
//
// There is one script because a bundler makes a bundle of each script that is started as a worker, and all of them can
// reach the line that starts workers: with a script per kind, the bundles would contain each other without end.

import "../platform/early-messages.ts";
import type { ThreadEntry } from "../platform/platform.ts";
import { threadEntry } from "../platform/worker-name.ts";

/** Loads a thread's file, which starts to listen when it is loaded. */
const entries: Readonly<Record<ThreadEntry, () => Promise<unknown>>> = {
  engine: () => import("./engine.ts"),
  compute: () => import("./compute.ts"),
  measure: () => import("./measure.ts"),
  quantize: () => import("./quantize.ts"),
  text: () => import("./text.ts"),
};

await entries[threadEntry()]();
