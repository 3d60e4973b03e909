// A chat that does not fit into the model's context any more: the possible actions, with a button for each.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { LoadPlan, OpenSession, ServedModel } from "../api-types.ts";
import { client } from "../state/connection.ts";
import { grouped } from "../state/format.ts";
import { loadModel } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { go } from "../state/route.ts";
import { useEscape } from "./scroll.ts";

interface Props {
  /** null: the first message is too long already. */
  session: OpenSession | null;
  served: ServedModel;
  /** Lets the model read only the latest messages. */
  onWindow(): void;
}

export function FullContext({ session, served, onWindow }: Props): JSX.Element {
  const { id, info } = served;
  const [plan, setPlan] = useState<LoadPlan | null>(null);
  const [doing, setDoing] = useState<"reload" | "summary" | null>(null);
  useEffect(() => {
    setDoing(null);
    // A server without memory plans offers no other size.
    void client.plan(id, {}).then(setPlan, () => setPlan(null));
  }, [id, info.contextSize]);
  const reload = (contextSize: number): void => {
    setDoing("reload");
    void attempt(() => loadModel(id, { contextSize })).then((done) => done ?? setDoing(null));
  };
  const writing = useRef<AbortController>(undefined);
  const stop = (): void => writing.current?.abort();
  useEffect(() => stop, []); // its result is not needed on another page
  useEscape(doing === "summary", stop);
  const summarise = async (): Promise<void> => {
    setDoing("summary");
    writing.current = new AbortController();
    const { signal } = writing.current;
    const made = await attempt(() =>
      client.summarise(session!.id, signal).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      }),
    );
    setDoing(null);
    if (made && !signal.aborted) go("chat", made.session.id);
  };
  const sizes = largerSizes(info.contextSize, plan?.mostContext ?? 0);
  return (
    <section class="card notice-card" role="alert" aria-label="The context is full">
      <h2>This chat is longer than the model can read at once</h2>
      <p>
        {id} reads {grouped(info.contextSize)} tokens (pieces of words), its answer included.
        Nothing of the chat is lost. You can:
      </p>
      <div class="row wrap">
        {sizes.map((size) => (
          <button key={size} type="button" disabled={doing !== null} onClick={() => reload(size)}>
            Reload with {grouped(size)} tokens
          </button>
        ))}
        {session && (
          <button type="button" disabled={doing !== null} onClick={onWindow}>
            Let it read only the latest messages
          </button>
        )}
        {session && (
          <button type="button" disabled={doing !== null} onClick={() => void summarise()}>
            Continue in a new chat with a summary
          </button>
        )}
        {doing === "summary" && (
          <button type="button" onClick={stop}>
            Stop
          </button>
        )}
      </div>
      <p class="hint" role="status">
        {doing === "reload" && "The model is being loaded. Then send your message again."}
        {doing === "summary" && "The model is writing the summary. This can take a minute or more."}
        {doing === null &&
          sizes.length === 0 &&
          "This machine’s memory, or the model’s training, allows no larger context."}
      </p>
    </section>
  );
}

/** Twice the current size, and the largest that fits. */
function largerSizes(now: number, most: number): number[] {
  return [...new Set([Math.min(2 * now, most), most])].filter((size) => size > now);
}
