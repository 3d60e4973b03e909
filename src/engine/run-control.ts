// What work on the engine's thread needs from that thread.

/** What a running generation needs from its thread. */
export interface RunControl {
  readonly aborted: boolean;
  /** Lets in pending messages, such as an abort. */
  breathe(): Promise<void>;
  now(): number;
}
