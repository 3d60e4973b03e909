// The purpose of this worker, from the name that browser.ts gave it. A separate file, because a worker asks before it loads
// anything else.

import { byName } from "../base/by-name.ts";
import type { ThreadEntry } from "./platform.ts";

const entries: Readonly<Record<string, ThreadEntry>> = byName({
  "lantern-engine": "engine",
  "lantern-compute": "compute",
  "lantern-measure": "measure",
  "lantern-quantize": "quantize",
  "lantern-text": "text",
});

export function threadEntry(): ThreadEntry {
  const entry = entries[self.name];
  if (entry) return entry;
  const known = Object.keys(entries).join(", ");
  throw new Error(`a worker called "${self.name}" was started, expected one of ${known}`);
}
