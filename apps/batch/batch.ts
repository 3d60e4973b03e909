// The types and limits of a batch: a file of requests that are answered when there is time, and the files of their
// answers. The names of states are OpenAI's; Anthropic's are made from them (apps/server/routes).

/** A file that a client uploaded, or that a batch made. Times are in milliseconds since 1970. */
export interface StoredFile {
  readonly id: string;
  /** The owner: other clients do not see the file. */
  readonly owner: string;
  readonly name: string;
  readonly purpose: FilePurpose;
  readonly bytes: number;
  readonly createdAt: number;
  readonly expiresAt: number | null;
}

export const filePurposes = ["batch", "batch_output"] as const;
export type FilePurpose = (typeof filePurposes)[number];

export type BatchState =
  | "validating"
  | "failed"
  | "in_progress"
  | "finalizing"
  | "completed"
  | "expired"
  | "cancelling"
  | "cancelled";

/** States after which nothing happens any more. */
export const endStates: ReadonlySet<BatchState> = new Set([
  "failed",
  "completed",
  "expired",
  "cancelled",
]);

/** An error in a line of an input file. */
export interface LineError {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  /** From 1; null: the error is about the file. */
  readonly line: number | null;
}

export interface Batch {
  readonly id: string;
  readonly owner: string;
  /** The API that made the batch: each API lists its own. */
  readonly api: BatchApi;
  /** The route that answers all of its lines: "/v1/chat/completions". */
  readonly endpoint: string;
  readonly inputFile: string;
  readonly outputFile: string | null;
  readonly errorFile: string | null;
  readonly state: BatchState;
  /** At most `shownErrors` of them. */
  readonly errors: readonly LineError[];
  readonly metadata: Readonly<Record<string, string>> | null;
  /** The completion window, as the client wrote it: "24h". */
  readonly window: string;
  readonly model: string | null;
  /** In a cluster: the fingerprint of the model that computes its lines, by the model name in the lines (docs/use/cluster.md). */
  readonly fingerprints?: Readonly<Record<string, string>>;
  readonly counts: LineCounts;
  readonly usage: TokenUsage;
  readonly createdAt: number;
  readonly expiresAt: number;
  /** The time at which it entered each state. */
  readonly at: Partial<Readonly<Record<BatchState, number>>>;
}

export type BatchApi = "openai" | "anthropic";

/** Every line is in one of these states. */
export const lineStates = ["waiting", "done", "failed", "cancelled", "expired"] as const;
export type LineState = (typeof lineStates)[number];

export type LineCounts = Readonly<Record<LineState | "total", number>>;

export interface TokenUsage {
  readonly input: number;
  readonly cached: number;
  readonly output: number;
}

export const noUsage: TokenUsage = { input: 0, cached: 0, output: 0 };

/** One request of a batch. */
export interface BatchLine {
  /** The index of its line in the file, from 0. */
  readonly index: number;
  readonly customId: string;
  readonly body: unknown;
}

/** Identifies a line among all batches. */
export interface LineId {
  readonly batch: string;
  /** The index of the line in the file, from 0. */
  readonly place: number;
}

/** The reason for giving up a running line for good: its batch is over. After any other reason, the process that continues the batch takes the line again. */
export class BatchOverError extends Error {}

/** The response of a route. */
export interface LineAnswer {
  readonly status: number;
  readonly requestId: string;
  readonly body: unknown;
  /** The engine or tab that computed the line ended before there was an answer: another try may have one. Tabs are closed all the time. */
  readonly lost?: "engine" | "tab";
}

/** A line of an output file, in OpenAI's form. */
export interface OutputLine {
  readonly id: string;
  readonly custom_id: string;
  readonly response: { status_code: number; request_id: string; body: unknown } | null;
  readonly error: { code: string; message: string } | null;
}

/** A request about files or batches that cannot be carried out. */
export class BatchError extends Error {
  readonly kind: "invalid" | "missing" | "conflict" | "full";
  readonly param: string | null;

  constructor(kind: BatchError["kind"], message: string, param: string | null = null) {
    super(message);
    this.name = "BatchError";
    this.kind = kind;
    this.param = param;
  }
}

/** Limits of a store. OpenAI's limits of a batch are 50,000 lines and 200 MB. */
export const batchLimits = {
  lines: 50_000,
  fileBytes: 209_715_200,
  lineBytes: 16_777_216,
  customIdLength: 512,
  files: 10_000,
  allBytes: 21_474_836_480,
  batches: 10_000,
  shownErrors: 100,
  /** Tries of a line, in this process or in earlier ones, before it counts as a line that cannot be answered. */
  tries: 3,
} as const;
