// The threads of a quantization: a pool on the caller's side, and the code of each thread. A chunk is sent with its
// bytes, and the quantized bytes come back; no memory is shared, so it works in every browser.

import { LanternError, ModelError, messageOf, WorkerError } from "../../base/errors.ts";
import type { EnginePort, EngineThread } from "../../platform/platform.ts";
import { type Chunk, type ChunkResult, quantizeChunk } from "./chunk.ts";
import { fastQuantizer } from "./fast.ts";
import { fastWiden } from "./widen.ts";

type Answer = { result: ChunkResult } | { problem: string; isOurs: boolean };

/** The thread's side: replies to every chunk with one message. */
export function serveQuantize(port: EnginePort): void {
  const quantize = fastQuantizer();
  const widen = fastWiden();
  port.onMessage((message) => {
    let answer: Answer;
    try {
      answer = { result: quantizeChunk(message as Chunk, quantize, widen) };
    } catch (error) {
      const problem = messageOf(error);
      answer = { problem, isOurs: !(error instanceof LanternError) };
    }
    port.post(answer, "result" in answer ? [answer.result.bytes.buffer] : []);
  });
}

interface Waiting {
  chunk: Chunk;
  resolve(result: ChunkResult): void;
  reject(error: unknown): void;
}

interface Member {
  thread: EngineThread;
  at: Waiting | undefined;
}

export class QuantizePool {
  readonly #members: Member[] = [];
  readonly #waiting: Waiting[] = [];
  #failure: Error | undefined;

  constructor(start: () => EngineThread, threads: number) {
    for (let i = 0; i < threads; i++) {
      const member: Member = { thread: start(), at: undefined };
      member.thread.onMessage((message) => this.#take(member, message as Answer));
      member.thread.onFailure((error) => this.#fail(error));
      this.#members.push(member);
    }
  }

  run(chunk: Chunk): Promise<ChunkResult> {
    if (this.#failure) return Promise.reject(this.#failure);
    const { promise, resolve, reject } = Promise.withResolvers<ChunkResult>();
    this.#waiting.push({ chunk, resolve, reject });
    this.#next();
    return promise;
  }

  async dispose(): Promise<void> {
    this.#failure ??= new WorkerError("quantize: its threads were stopped");
    await Promise.all(this.#members.map(({ thread }) => thread.terminate()));
  }

  #next(): void {
    for (const member of this.#members) {
      if (member.at) continue;
      const waiting = this.#waiting.shift();
      if (!waiting) return;
      member.at = waiting;
      member.thread.post(waiting.chunk, [waiting.chunk.bytes.buffer]);
    }
  }

  #take(member: Member, answer: Answer): void {
    const { at } = member;
    member.at = undefined;
    if ("result" in answer) at?.resolve(answer.result);
    else {
      const { problem, isOurs } = answer;
      at?.reject(
        isOurs ? new WorkerError(`quantize: a thread failed: ${problem}`) : new ModelError(problem),
      );
    }
    this.#next();
  }

  #fail(error: Error): void {
    this.#failure = new WorkerError(`quantize: a thread stopped unexpectedly: ${error.message}`, {
      cause: error,
    });
    for (const { at } of this.#members) at?.reject(this.#failure);
    for (const { reject } of this.#waiting.splice(0)) reject(this.#failure);
  }
}
