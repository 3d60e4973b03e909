// Waiting for something, but not forever: of threads that end, connections that close, state that is stored. What waits for a sign of
// life again and again is base/stall.ts.

/** Resolves when the work has, or after so many ms; rejects if it does before. */
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
