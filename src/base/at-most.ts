// Waiting with a time-out: for threads that end, connections that close, state that is stored. base/stall.ts waits for repeated signs
// of life.

/** Resolves when the work has, or after this many ms; rejects if the work does so before. */
export async function atMost(ms: number, work: Promise<unknown>): Promise<void> {
  if (ms === Infinity) return void (await work);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
