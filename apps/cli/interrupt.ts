// Ctrl-C during a command: the first stops the work through an AbortSignal, the second ends the process
// (src/platform/node-cli.ts does that).

import type { Terminal } from "../../src/platform/node-cli.ts";

/** The exit code of a program that Ctrl-C ended: 128 + SIGINT. */
export const interruptExitCode: number = 130;

export interface Interruptible {
  readonly signal: AbortSignal;
  [Symbol.dispose](): void;
}

export function interruptible(terminal: Terminal): Interruptible {
  const controller = new AbortController();
  const stopListening = terminal.onInterrupt(() => {
    controller.abort();
  });
  return { signal: controller.signal, [Symbol.dispose]: stopListening };
}
