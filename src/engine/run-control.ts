// The control of work on the engine's thread.

/** The calls that a running generation makes on its thread. */
export interface RunControl {
  readonly aborted: boolean;
  /** Lets in pending messages, such as an abort. */
  yieldThread(): Promise<void>;
  now(): number;
}
