// The messages between the page and its thread.

/** The user's choice. */
export interface TabChoice {
  /** A file, or the address of one. */
  readonly model: File | string;
  /** The model's name for clients. */
  readonly name: string;
  /** Addresses of NATS's WebSockets, separated by commas. */
  readonly cluster: string;
  readonly group: string;
  /** The text of a .creds file; undefined: user and password. */
  readonly creds: string | undefined;
  readonly user: string;
  readonly password: string;
  readonly parallel: number;
}

/** A choice to serve with; null: to stop. */
export type ToThread = TabChoice | null;

export type TabState =
  | { readonly is: "idle" }
  | { readonly is: "connecting" }
  | { readonly is: "stopping" }
  | { readonly is: "loading"; readonly share: number }
  | {
      readonly is: "serving";
      readonly worker: string;
      readonly threads: number;
      readonly running: number;
      readonly answered: number;
      readonly tokensPerSecond: number;
    }
  | { readonly is: "failed"; readonly why: string };
