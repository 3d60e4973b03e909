// What the tests of sessions share: a folder that goes away, and a model whose words come when the test says so.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type { PartReader } from "../../apps/sessions/answer.ts";
import type { ChatPrompt, RunGeneration, RunModel } from "../../apps/sessions/prompt.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import type {
  ChatMessage,
  GenerateOptions,
  GenerationResult,
  TokenEvent,
} from "../../src/api/api.ts";
import type { Database } from "../../src/platform/database.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";

/** A file name in a folder of its own, gone after the test. */
export function scratchFile(name: string = "sessions.db"): string {
  const folder = mkdtempSync(join(tmpdir(), "lantern-sessions-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, name);
}

export interface Opened {
  file: string;
  database: Database;
  store: SessionStore;
}

/** A store on disk with a clock that ticks once a call. */
export function scratchStore(
  file: string = scratchFile(),
  database: Database = openNodeDatabase(file),
): Opened {
  onTestFinished(() => database.close());
  let time = 1_700_000_000_000;
  return { file, database, store: new SessionStore(database, { now: () => ++time }) };
}

/** One generation that the test drives. */
export interface Spoken {
  tokens: readonly number[];
  options: GenerateOptions;
  say(text: string): void;
  end(reason?: GenerationResult["stopReason"]): void;
  fail(error: Error): void;
}

/** A model with a token a letter. Its generations stand in `spoken`, in the order of their start. */
export class FakeModel implements RunModel {
  readonly name: string = "fake";
  contextSize = 1000;
  trainedContext = 4096;
  readonly spoken: Spoken[] = [];
  readonly prompts: string[] = [];

  /** Tells reasoning and calls from its words. */
  reader: (() => PartReader) | undefined;
  /** The conversations that it was asked to answer. */
  readonly asked: (readonly ChatMessage[])[] = [];

  async chatPrompt(messages: readonly ChatMessage[]): Promise<ChatPrompt> {
    this.asked.push(messages);
    const text = messages.map(({ role, content }) => `<${role}>${content}`).join("");
    return { tokens: await this.textTokens(text), reader: this.reader };
  }

  async textTokens(text: string): Promise<number[]> {
    this.prompts.push(text);
    return [...text].map((letter) => letter.codePointAt(0)!);
  }

  checkCapacity(): void {}

  async generate(tokens: readonly number[], options: GenerateOptions): Promise<RunGeneration> {
    const queue: TokenEvent[] = [];
    let text = "";
    let count = 0;
    let wake = (): void => {};
    let ended: GenerationResult["stopReason"] | Error | undefined;
    const finish = (how: GenerationResult["stopReason"] | Error): void => {
      ended ??= how;
      wake();
    };
    options.signal?.addEventListener("abort", () => finish("aborted"));
    this.spoken.push({
      tokens,
      options,
      say: (piece) => {
        text += piece;
        count++;
        queue.push({ id: count, text: piece });
        wake();
      },
      end: (reason = "end") => finish(reason),
      fail: finish,
    });
    const done = Promise.withResolvers<GenerationResult>();
    done.promise.catch(() => {});
    async function* read(): AsyncGenerator<TokenEvent> {
      for (;;) {
        const next = queue.shift();
        if (next) yield next;
        else if (ended) break;
        else {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      }
      if (ended instanceof Error) {
        done.reject(ended);
        throw ended;
      }
      const none = { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 };
      done.resolve({
        text,
        promptTokenIds: [...tokens],
        tokenIds: [],
        stopReason: ended!,
        timings: {
          loadMs: 0,
          promptTokens: tokens.length,
          cachedTokens: 0,
          promptMs: 1,
          generatedTokens: count,
          generatedMs: 1,
          sampledTokens: count,
          sampleMs: 0,
          totalMs: 2,
          work: { prompt: none, generation: none },
        },
      });
    }
    return { tokens: read, result: done.promise };
  }
}

/** Lets everything that is ready happen. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 5; i++) await new Promise<void>((resolve) => setImmediate(resolve));
}
