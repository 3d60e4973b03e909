// Machine code in a memory file (memfd_create): written once and sealed, after which no process can change it, not even this one.
// There is no file on disk that could be replaced.
//
// All threads of the process share it: a thread first looks for a descriptor with this content among the open ones.

import { writeSync } from "node:fs";
import { descriptorsTo, type Held, hasContent } from "./node-descriptors.ts";
import type { Libc } from "./node-libc.ts";

/** Finds or makes sealed memory with this content; `name` is a hash of it. */
export function holdInMemory(libc: Libc, content: Uint8Array, name: string): Held {
  const label = `lantern-${name}`;
  for (const descriptor of descriptorsTo(`/memfd:${label} (deleted)`)) {
    if (libc.isSealed(descriptor) && hasContent(descriptor, content)) return { descriptor };
  }
  const descriptor = libc.memoryFile(label);
  if (descriptor < 0) return { refused: "the system gives no memory with a descriptor" };
  try {
    for (let done = 0; done < content.length; ) {
      done += writeSync(descriptor, content, done, content.length - done, done);
    }
  } catch (error) {
    libc.close(descriptor);
    return { refused: `memory could not be written (${(error as Error).message})` };
  }
  if (libc.seal(descriptor) && hasContent(descriptor, content)) return { descriptor };
  libc.close(descriptor);
  return { refused: "memory could not be sealed" };
}
