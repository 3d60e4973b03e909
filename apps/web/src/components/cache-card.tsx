// Copies of conversations in memory and on disk: how much each model has, how often they were used, and a button that clears them.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { CacheView } from "../api-types.ts";
import { client } from "../state/connection.ts";
import { bytesText } from "../state/format.ts";
import { attempt } from "../state/notices.ts";
import { Confirm } from "./dialog.tsx";

type Stored = CacheView["stored"]["models"][number];
type Served = CacheView["served"][number];

/** The copies to clear; "all": all of them. */
type Chosen = Stored | "all" | null;

export function CacheCard(): JSX.Element | null {
  const [view, setView] = useState<CacheView | null>(null);
  const [chosen, setChosen] = useState<Chosen>(null);
  useEffect(() => void attempt(async () => setView(await client.cache())), []);
  if (!view) return null;
  const { stored, served } = view;
  const inMemory = served.reduce((sum, { cache }) => sum + cache.ram.bytes, 0);
  const clear = (what: Chosen): void =>
    void attempt(async () =>
      setView(await client.clearCache(what === "all" || what === null ? undefined : what.folder)),
    );
  return (
    <section class="card" aria-label="Saved computations">
      <h2>Saved computations</h2>
      <p class="hint path">
        What was computed for conversations is kept, so that they go on at once, also after a
        restart: {bytesText(stored.bytes)} on disk
        {stored.path === null ? "" : ` in ${stored.path}`}, {bytesText(inMemory)} in memory.
      </p>
      <ul class="models">
        {served.map((one) => (
          <li key={one.id}>
            <p class="hint">{servedText(one)}</p>
          </li>
        ))}
        {stored.models.map((one) => (
          <li key={one.folder}>
            <div class="model-facts">
              <h3>{one.model || one.folder}</h3>
              <p class="hint">
                {bytesText(one.bytes)}, KV cache {one.kvType || "?"}, {one.backend || "?"}
              </p>
            </div>
            <button type="button" onClick={() => setChosen(one)}>
              Clear
            </button>
          </li>
        ))}
      </ul>
      <button
        type="button"
        disabled={stored.bytes + inMemory === 0}
        onClick={() => setChosen("all")}
      >
        Clear all
      </button>
      {chosen && (
        <Confirm
          title="Clear saved computations"
          text={`${what(chosen)} will be computed again when they go on. The conversations themselves stay.`}
          action="Clear"
          onConfirm={() => clear(chosen)}
          onClose={() => setChosen(null)}
        />
      )}
    </section>
  );
}

function what(chosen: Stored | "all"): string {
  return chosen === "all" ? "All conversations" : `Conversations with ${chosen.model || "it"}`;
}

function servedText({ id, cache }: Served): string {
  const { tokens, ram, disk } = cache;
  const all = tokens.kv + tokens.ram + tokens.disk + tokens.computed;
  const budgets = `${bytesText(ram.bytes)} of ${bytesText(ram.budgetBytes)} in memory, up to ${bytesText(disk.budgetBytes)} on disk`;
  if (all === 0) return `${id}: ${budgets}. No prompt yet.`;
  const share = (count: number): string => `${Math.round((100 * count) / all)}%`;
  return `${id}: ${budgets}. Of ${all.toLocaleString("en")} prompt tokens, ${share(tokens.kv)} were in the KV cache, ${share(tokens.ram)} came from memory, ${share(tokens.disk)} from disk; ${share(tokens.computed)} were computed.`;
}
