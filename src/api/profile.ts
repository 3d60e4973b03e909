// Public types for profiles: the report of model.profile(), and its trace. Part of api.ts.
//
// src/profile/ makes them from the threads' recordings.

export interface ProfileOptions {
  /** Include the last events one by one, for chrome://tracing or ui.perfetto.dev; some megabytes. */
  trace?: boolean | undefined;
  /** Start over after this report: later reports do not count the work until now. */
  reset?: boolean | undefined;
}

/** The times of an engine: loading, then everything run since, or since the last reset. */
export interface ProfileReport {
  threads: number;
  /**
   * `startMs` is starting the engine's thread and loading its code, `openMs` the header, the tokenizer and the tune file,
   * `prepareMs` compiling kernels and allocating memory, `readMs` reading weights, `packMs` converting them to the layout that
   * kernels read.
   */
  load: {
    ms: number;
    startMs: number;
    openMs: number;
    prepareMs: number;
    readMs: number;
    packMs: number;
  };
  phases: PhaseProfile[];
  /**
   * Description of the device that limits are computed for: "measured 2026-11-15, 2 threads"; undefined if it was
   * not measured.
   */
  device: string | undefined;
  /** The report of each backend, if two compute. */
  sides?: SideReport[];
  /** Calls below the ops, of loading and of the work after it, longest first. */
  calls: CallRow[];
  /** The copies between host and device, by direction; empty if there is no device. */
  copies: CopyRow[];
  /** The largest part of the time, in one sentence. */
  bottleneck: string;
  /** The way it was recorded, or the reason why it was not. */
  notes?: string[];
  trace?: ChromeTrace;
}

/** One of two backends that compute a model together. */
export interface SideReport {
  /** "cpu", "webgpu" */
  name: string;
  /** The origin of its limits; undefined: not known. */
  device: string | undefined;
  phases: {
    phase: "prompt" | "generation";
    /** Time of all of its ops, averaged over its threads. */
    computeMs: number;
    /** The part of that time that the hardware needs at least. */
    limit: ProfileRow["limit"];
  }[];
}

/**
 * Calls of one name. "webgpu": methods of the API, by the host's clock; "cpu": packing, waking up and waiting of threads
 * in the recorded batches, all threads together; "engine": reads of the model's files.
 */
export interface CallRow {
  by: string;
  name: string;
  when: "load" | "run";
  count: number;
  ms: number;
  averageMs: number;
  minMs: number;
  maxMs: number;
  /** The variance of the times of single calls. */
  varianceMs2: number;
  /** Bytes that they moved or allocated; undefined: none. */
  bytes: number | undefined;
  /** undefined if the call only enqueues the work, or moves no bytes. */
  bytesPerSecond: number | undefined;
}

export interface CopyRow {
  direction: "host to device" | "device to host" | "device to device";
  when: "load" | "run";
  count: number;
  bytes: number;
  /** Time of the host; undefined within the device, which copies while the host continues. */
  ms: number | undefined;
  bytesPerSecond: number | undefined;
}

/** One phase, all generations together. computeMs + waitingMs + betweenMs = ms. */
export interface PhaseProfile {
  phase: "prompt" | "generation";
  ms: number;
  batches: number;
  tokens: number;
  /** Time of the backend's batches: computeMs + waitingMs. */
  batchMs: number;
  /** Time of all ops, averaged over the threads. */
  computeMs: number;
  /** Time that threads waited within batches, averaged over the threads. */
  waitingMs: number;
  /** Time in which only one thread could work. */
  aloneMs: number;
  betweenMs: number;
  /** The engine's work between the batches. */
  between: {
    /** Template, tokenizing, making the sampler: the work before prefill. Not in Timings.promptMs. */
    requestMs: number;
    bookkeepingMs: number;
    logitsMs: number;
    samplingMs: number;
    textMs: number;
    messagesMs: number;
  };
  /** For each thread, busyMs + waitingMs = batchMs. */
  threads: { busyMs: number; waitingMs: number }[];
  /** The name of the worker, if it is not threads: "GPU". It is then the only entry of `threads`. */
  worker?: string;
  /**
   * JavaScript heap that the engine's thread allocates from one batch to the next; undefined where the platform does
   * not report it. Tensor memory is allocated when a model is loaded: a batch allocates none.
   */
  heapBytesPerBatch: number | undefined;
  /** The rows by kind of op, longest first; by layer, in order; by node without its layer, longest first. */
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
  /** Fraction of the phase's time, 0 to 1. */
  share: number;
  /** Weights and cached keys and values read per second while it was computed. */
  bytesPerSecond: number;
  /** A multiply and an add are two operations. */
  opsPerSecond: number;
  /**
   * Fraction of the hardware's limit that was reached, 0 to 1; undefined where the limit is unknown or there is no
   * work.
   */
  limit: { resource: "bandwidth" | "arithmetic"; fraction: number } | undefined;
}

/** Chrome's trace format, only the part used here: write it to a file as JSON. */
export interface ChromeTrace {
  traceEvents: TraceEvent[];
  displayTimeUnit: "ms";
}

export interface TraceEvent {
  name: string;
  cat?: string;
  /** "X": something with a duration; "C": values of a counter from then on; "M": the name of a process or a track. */
  ph: "X" | "C" | "M";
  pid: number;
  tid: number;
  /** Microseconds. */
  ts: number;
  dur?: number;
  args?: Record<string, string | number>;
}
