// Messages that reach a browser's worker before it listens. A worker's script waits for its platform to be loaded, and a
// browser delivers what was posted to it meanwhile, to nobody: without this the first requests are lost. (Node keeps
// them until somebody listens.) Must be imported statically, so that it runs before the first await. Does nothing in a
// page or in Node.

let early: unknown[] | undefined;

const keep = (event: MessageEvent): void => void early?.push(event.data);

if ("WorkerGlobalScope" in globalThis) {
  early = [];
  addEventListener("message", keep);
}

/** The messages so far, once; from now on the caller listens. */
export function takeEarlyMessages(): unknown[] {
  if (early !== undefined) removeEventListener("message", keep);
  const taken = early ?? [];
  early = undefined;
  return taken;
}
