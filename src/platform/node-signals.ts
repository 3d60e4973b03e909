// Signals that end the process, in Node: a listener handles the first, the second ends it.

import * as os from "node:os";

const interrupts = ["SIGINT", "SIGTERM"] as const;

/** One Ctrl-C arrives twice when the launcher passes it on; no user presses it twice within this time. */
const sameInterruptMs = 100;

/** The listener handles the first signal; the second ends the process, even while the listener runs. */
export function onInterrupt(listener: () => void): () => void {
  let last: { signal: NodeJS.Signals; atMs: number } | undefined;
  const handle = (signal: NodeJS.Signals): void => {
    const before = last;
    last = { signal, atMs: performance.now() };
    if (before === undefined) {
      listener();
      // If there is no cleanup, restore the default action for the second signal: then not even a busy thread can miss it.
      const letGo = (): void => {
        if (process.listenerCount("exit") === 0) stopListening();
      };
      setTimeout(letGo, sameInterruptMs).unref();
    } else if (signal !== before.signal || last.atMs - before.atMs >= sameInterruptMs) {
      endNow(signal);
    }
  };
  const stopListening = (): void => {
    for (const signal of interrupts) process.off(signal, handle);
  };
  for (const signal of interrupts) process.on(signal, handle);
  return stopListening;
}

/**
 * Ends the process as an unhandled signal does. process.exit() would wait for every thread, and one that hangs in
 * machine code or in a system call never ends.
 */
export function endNow(signal: NodeJS.Signals): void {
  if (process.platform === "win32") process.exit(128 + os.constants.signals[signal]);
  try {
    process.emit("exit", 128 + os.constants.signals[signal]); // removes unfinished files
  } finally {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  }
}
