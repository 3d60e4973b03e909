// What every worker of a browser starts with. All of them run this one script and learn from their name what they are
// for; Node's threads start with the files below themselves.
//
// One script, because a bundler makes a bundle of each script that it sees a worker started with, and everything here
// can reach the line that starts workers: with a script for each kind they would contain each other without end.

import "../platform/early-messages.ts";
import type { ThreadEntry } from "../platform/platform.ts";
import { threadEntry } from "../platform/worker-name.ts";

/** Loads a thread's file, which starts to listen by itself. */
const entries: Readonly<Record<ThreadEntry, () => Promise<unknown>>> = {
  engine: () => import("./engine.ts"),
  compute: () => import("./compute.ts"),
  measure: () => import("./measure.ts"),
  quantize: () => import("./quantize.ts"),
  text: () => import("./text.ts"),
};

await entries[threadEntry()]();
