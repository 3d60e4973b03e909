// Public types: where the time went. What model.profile() reports, and a trace of it. Part of api.ts.
//
// src/profile/ makes them of what the threads recorded.

export interface ProfileOptions {
  /** With the last events one by one, for chrome://tracing or ui.perfetto.dev; some megabytes. */
  trace?: boolean;
  /** Begin anew after this report: what ran until now is in no later one. */
  reset?: boolean;
}

/** Where the time went: loading, then what was run since, or since the last reset. */
export interface ProfileReport {
  threads: number;
  /** `readMs` is waiting for the file, `packMs` bringing weights into the layout that kernels read. */
  load: { ms: number; openMs: number; prepareMs: number; readMs: number; packMs: number };
  phases: PhaseProfile[];
  /** What limits are measured against, for people: "measured 2026-11-15, 2 threads"; undefined: nothing. */
  device: string | undefined;
  /** What takes most of the time, in one sentence. */
  bottleneck: string;
  /** How it was recorded, or why not, where there is something to say. */
  notes?: string[];
  trace?: ChromeTrace;
}

/** One phase, all generations together. computeMs + waitingMs + betweenMs = ms. */
export interface PhaseProfile {
  phase: "prompt" | "generation";
  ms: number;
  batches: number;
  tokens: number;
  /** Of that, the backend's batches: computeMs + waitingMs. */
  batchMs: number;
  /** All ops, averaged over the threads. */
  computeMs: number;
  /** Time that threads spent waiting for work within batches, averaged over the threads. */
  waitingMs: number;
  /** Time in which only one thread could work. */
  aloneMs: number;
  betweenMs: number;
  /** What the engine did between the batches. */
  between: {
    /** Template, tokenizing, the sampler: before a prompt is read. Not in Timings.promptMs. */
    requestMs: number;
    bookkeepingMs: number;
    logitsMs: number;
    samplingMs: number;
    textMs: number;
    messagesMs: number;
  };
  /** Of each thread: busyMs + waitingMs = batchMs. */
  threads: { busyMs: number; waitingMs: number }[];
  /** What computes, where that is not threads: "GPU". It is then the one entry of `threads`. */
  worker?: string;
  /**
   * What a batch and all that is done until the next take of JavaScript's heap, on the engine's thread; undefined where
   * the platform does not say. Tensor memory is laid out when a model is loaded: a batch takes none.
   */
  heapBytesPerBatch: number | undefined;
  /** By kind of op, longest first; by layer, in order; by node with its layer left out, longest first. */
  ops: ProfileRow[];
  layers: ProfileRow[];
  nodes: ProfileRow[];
  /** One sentence. */
  summary: string;
}

export interface ProfileRow {
  name: string;
  calls: number;
  /** Averaged over the threads. */
  ms: number;
  /** Of the phase's time, 0 to 1. */
  share: number;
  /** Weights and cached keys and values, while it was computed. */
  bytesPerSecond: number;
  /** A multiply and an add are two operations. */
  opsPerSecond: number;
  /** How much of what the hardware allows was reached, 0 to 1; undefined where nobody knows, or there is no work. */
  limit: { resource: "bandwidth" | "arithmetic"; fraction: number } | undefined;
}

/** The trace format of Chrome, as far as it is used here: write it to a file as JSON. */
export interface ChromeTrace {
  traceEvents: TraceEvent[];
  displayTimeUnit: "ms";
}

export interface TraceEvent {
  name: string;
  cat?: string;
  /** "X": something with a duration; "M": the name of a track. */
  ph: "X" | "M";
  pid: number;
  tid: number;
  /** Microseconds. */
  ts?: number;
  dur?: number;
  args?: Record<string, string | number>;
}
