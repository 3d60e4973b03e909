// Ctrl-C while a command works: the first stops the work politely through an AbortSignal, the second ends the process (the terminal sees to that).

import type { Terminal } from "../platform/node-cli.ts";

/** What a shell reports for a program that Ctrl-C ended: 128 + SIGINT. */
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
