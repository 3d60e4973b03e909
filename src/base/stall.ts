// Detects a connection that stalls. It times the wait for the response or for its next bytes, never the whole transfer.

import { UsageError } from "./errors.ts";

/** Seconds without a byte after which a connection is given up, unless the user sets another limit. */
export const usualStallSeconds = 30;

/** The environment variable that sets another limit. */
export const stallVariable = "LANTERN_HTTP_TIMEOUT";

export class StalledError extends Error {
  constructor(ms: number) {
    super(`nothing came for ${ms / 1000} s`);
  }
}

/** The limit in milliseconds, from the variable's text. */
export function stallMs(text: string | undefined): number {
  if (text === undefined || text === "") return usualStallSeconds * 1000;
  const seconds = Number(text);
  if (seconds > 0 && seconds <= 86_400) return seconds * 1000;
  throw new UsageError(
    `${stallVariable}: got ${JSON.stringify(text)}, expected a number of seconds above 0 and up to 86400: how long a server may be silent`,
  );
}

/** Resolves with `awaited` if it comes in time. Otherwise calls `giveUp` and throws a StalledError. */
export async function unlessStalled<T>(
  awaited: Promise<T>,
  ms: number,
  giveUp: () => void,
): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stalled = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new StalledError(ms));
      giveUp();
    }, ms);
  });
  try {
    return await Promise.race([awaited, stalled]);
  } finally {
    clearTimeout(timer);
  }
}
