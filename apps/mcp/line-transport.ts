// A transport in the SDK's sense: JSON-RPC over a pipe, one message a line.

import type { LinePipe } from "../../src/platform/node-lines.ts";
import { strayLines } from "./limits.ts";
import type { RpcMessage, Transport } from "./sdk.ts";

export class LineTransport implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: ((message: never) => void) | undefined;
  /** Why it ended, as a clause; undefined: it has not, or we ended it. */
  reason: string | undefined;
  readonly #pipe: LinePipe;
  #stray = 0;
  #isClosed = false;

  constructor(pipe: LinePipe) {
    this.#pipe = pipe;
  }

  async start(): Promise<void> {
    this.#pipe.listen(
      (line) => this.#read(line),
      (reason) => this.#end(reason),
    );
  }

  async send(message: RpcMessage): Promise<void> {
    await this.#pipe.write(JSON.stringify(message));
  }

  async close(): Promise<void> {
    this.#end(undefined);
    await this.#pipe.close();
  }

  #read(line: string): void {
    if (this.#isClosed || line.trim() === "") return;
    let message: unknown;
    try {
      message = JSON.parse(line);
    } catch {
      message = undefined;
    }
    if (typeof message === "object" && message !== null && !Array.isArray(message)) {
      this.onmessage?.(message as never);
      return;
    }
    const shown = JSON.stringify(line.slice(0, 80));
    this.onerror?.(new Error(`a line is no message: ${shown}`));
    if (++this.#stray >= strayLines) {
      this.#end(`it sent ${strayLines} lines that are no messages, the last: ${shown}`);
      void this.#pipe.close();
    }
  }

  #end(reason: string | undefined): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.reason = reason;
    this.onclose?.();
  }
}
