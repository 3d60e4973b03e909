// All answers that the lines of a batch have by now, from the stream of answers into a store: for a gateway that takes a batch over.

import type { JetStreamManager } from "@nats-io/jetstream";
import { saveAnswer } from "../batch/runner.ts";
import type { BatchStore } from "../batch/store.ts";
import { readAnswer } from "./line-queue.ts";
import { answerStream, lineOf, lineSubjects, loadJetStream } from "./line-streams.ts";
import type { NatsConnection } from "./peer.ts";

export interface KnownAnswersOptions {
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  readonly store: BatchStore;
  /** Called when its lines are in the store. */
  readonly batch: string;
}

export async function saveKnownAnswers(options: KnownAnswersOptions): Promise<void> {
  const { connection, manager, store, batch } = options;
  const filter = lineSubjects.answersOf(batch);
  const { state } = await manager.streams.info(answerStream, { subjects_filter: filter });
  let left = Object.keys(state.subjects ?? {}).length;
  if (left === 0) return;
  const { jetstream } = await loadJetStream();
  const consumer = await jetstream(connection).consumers.get(answerStream, {
    filter_subjects: filter,
  });
  const messages = await consumer.consume();
  for await (const { subject, data, info } of messages) {
    const { place } = lineOf(subject);
    const [line] = store.answers(batch, place, 1);
    if (line?.index === place) saveAnswer(store, batch, line, readAnswer(data));
    if (--left === 0 || info.pending === 0) break; // some may be older than NATS keeps them by now
  }
  messages.stop();
}
