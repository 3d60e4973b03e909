// Keeps messages that reach a browser worker before it listens. A worker's script first waits for its platform to load, and the
// browser drops messages that arrive without a listener: without this file, the first requests would be lost. (Node keeps them
// until there is a listener.) It must be imported statically, so that it runs before the first await. It does nothing in a page or
// in Node.

let early: unknown[] | undefined;

const keep = (event: MessageEvent): void => void early?.push(event.data);

if ("WorkerGlobalScope" in globalThis) {
  early = [];
  addEventListener("message", keep);
}

/** Returns the messages so far, once; from now on the caller listens. */
export function takeEarlyMessages(): unknown[] {
  if (early !== undefined) removeEventListener("message", keep);
  const taken = early ?? [];
  early = undefined;
  return taken;
}
