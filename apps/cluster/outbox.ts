// A worker's queue of messages to gateways: parts of answers, collected for one pass of the event loop and sent as one message for each
// gateway. A batch of the model gives a token to each of its answers in the same pass, so that many users of a worker cost little more than
// one.

import { type AnswerPart, subjects } from "./messages.ts";
import { checkPayload, type NatsConnection } from "./peer.ts";
import { encodeText } from "./wire.ts";

const encoder = new TextEncoder();
/** A message with more letters than this is sent at once. */
const MOST_LETTERS = 64 * 1024;

/** Runs after all events that have arrived already. */
const soon: (work: () => void) => unknown =
  typeof setImmediate === "function" ? setImmediate : (work) => setTimeout(work, 0);

export class Outbox {
  readonly #connection: NatsConnection;
  readonly #worker: string;
  readonly #waiting = new Map<string, { texts: string[]; letters: number }>();
  #isPlanned = false;

  constructor(connection: NatsConnection, worker: string) {
    this.#connection = connection;
    this.#worker = worker;
  }

  /** Throws if the part is larger than NATS's limit; nothing is sent then. */
  add(gateway: string, part: AnswerPart): void {
    const text = encodeText(part);
    // Short ones need no count of their bytes.
    if (text.length > MOST_LETTERS) {
      checkPayload(this.#connection, encoder.encode(text), "an answer");
    }
    const known = this.#waiting.get(gateway) ?? { texts: [], letters: 0 };
    if (known.letters + text.length > MOST_LETTERS) this.#send(gateway, known);
    known.texts.push(text);
    known.letters += text.length;
    this.#waiting.set(gateway, known);
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    soon(() => this.flush());
  }

  flush(): void {
    this.#isPlanned = false;
    for (const [gateway, waiting] of this.#waiting) this.#send(gateway, waiting);
    this.#waiting.clear();
  }

  #send(gateway: string, waiting: { texts: string[]; letters: number }): void {
    const { texts } = waiting;
    if (texts.length === 0 || this.#connection.isClosed()) return;
    const bytes = encoder.encode(`[${texts.join(",")}]`);
    waiting.texts = [];
    waiting.letters = 0;
    this.#connection.publish(subjects.answer(gateway, this.#worker), bytes);
  }
}
