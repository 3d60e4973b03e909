// Which files of a model were opened, for tools that write: none of them may be overwritten.

import type { ModelSource } from "../platform.ts";

/** The same source, which adds the name of each file that is opened to `read`. */
export function recording(source: ModelSource, read: Set<string>): ModelSource {
  return {
    ...source,
    open: async (file) => {
      read.add(file);
      return await source.open(file);
    },
  };
}
