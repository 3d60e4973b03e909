// Decides which calls may run: those that the user has allowed, and those that are confirmed. A tool's result never changes this.

import type { ToolCall, ToolDecision } from "../../src/index.ts";

/** once: this call; always: this tool from now on. */
export type Confirmation = "once" | "always" | "no";

export class CallPolicy {
  readonly #allowed: Set<string>;
  readonly #allowsAll: boolean;
  readonly #ask: ((call: ToolCall) => Promise<Confirmation>) | undefined;

  /** @param ask undefined: no confirmation is possible, and calls that are not allowed are refused. */
  constructor(
    allowed: "all" | readonly string[],
    ask: ((call: ToolCall) => Promise<Confirmation>) | undefined,
  ) {
    this.#allowsAll = allowed === "all";
    this.#allowed = new Set(allowed === "all" ? [] : allowed);
    this.#ask = ask;
  }

  allows(name: string): boolean {
    return this.#allowsAll || this.#allowed.has(name);
  }

  /** The callback for onCall of chat.send(). */
  async decide(call: ToolCall): Promise<ToolDecision> {
    if (this.allows(call.name)) return true;
    if (this.#ask === undefined) return "nobody can be asked, and it is not allowed beforehand";
    const answer = await this.#ask(call);
    if (answer === "always") this.#allowed.add(call.name);
    return answer !== "no";
  }
}
