// The Batches page: files of requests that the server answers when it is idle (docs/use/batch.md). Upload one, watch it, cancel it, save
// its answers. The batches are those of OpenAI's API with the same key.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { RequestError } from "../api.ts";
import type { BatchList } from "../api-types.ts";
import { BatchCard } from "../components/batch-card.tsx";
import { Trouble } from "../components/trouble.tsx";
import { endpointOf, endpoints, isOver } from "../state/batches.ts";
import { client } from "../state/connection.ts";
import { refreshModels } from "../state/models.ts";
import { attempt, notify } from "../state/notices.ts";
import { saveFile } from "../state/save-file.ts";
import { useFollowed } from "../state/use-followed.ts";

const pollMs = 1000;

export function BatchesPage(): JSX.Element {
  const followed = useFollowed(readBatches, { everyMs: pollMs, isMoving });
  const { value, problem, look } = followed;
  const list = value === "off" ? null : value;
  useEffect(() => void attempt(refreshModels), []);
  const now = Date.now();
  const cancel = (id: string): void =>
    void attempt(async () => {
      await client.cancelBatch(id);
      await look();
    });
  const save = (file: string, name: string): void =>
    void attempt(async () => saveFile(await client.fileContent(file), name));
  return (
    <div class="facts">
      <header class="facts-head">
        <h1>Batches</h1>
        <p>
          Many requests in a file, answered when nobody else needs this machine. Chats are not
          slowed down by them, and what was answered survives a restart.
        </p>
      </header>
      {problem !== null && <Trouble onAgain={followed.again}>{problem}</Trouble>}
      {value === "off" ? (
        <p class="card ending" role="alert">
          This server keeps no batches. Start it without --no-batches and --no-sessions.
        </p>
      ) : (
        (problem === null || value !== null) && <NewBatch onStart={() => void attempt(look)} />
      )}
      {list?.data.map((batch) => (
        <BatchCard
          key={batch.id}
          batch={batch}
          name={list.names.get(batch.input_file_id) ?? batch.id}
          now={now}
          onCancel={() => cancel(batch.id)}
          onSave={save}
        />
      ))}
      {list?.has_more && (
        <p class="hint">These are the newest; `lantern batch list` shows all of them.</p>
      )}
    </div>
  );
}

function NewBatch({ onStart }: { onStart(): void }): JSX.Element {
  const [file, setFile] = useState<File | null>(null);
  const [endpoint, setEndpoint] = useState<string>(endpoints[0]);
  const [isSending, setSending] = useState(false);
  const pick = (picked: File | null): void => {
    setFile(picked);
    if (picked) void endpointOf(picked).then((found) => found && setEndpoint(found));
  };
  const start = (): void =>
    void attempt(async () => {
      setSending(true);
      try {
        await client.startBatch(file!, endpoint);
        notify("The batch has begun.");
        onStart();
      } finally {
        setSending(false);
      }
    });
  return (
    <section class="card controls" aria-label="A new batch">
      <label class="field">
        <span class="field-label">File</span>
        <input
          type="file"
          accept=".jsonl,.ndjson,application/jsonl,text/plain"
          onChange={(event) => pick(event.currentTarget.files?.[0] ?? null)}
        />
        <span class="hint">
          A JSON object in each line: custom_id, method, url, body. At most 50,000 lines and 200 MiB
        </span>
      </label>
      <label class="field">
        <span class="field-label">Requests are for</span>
        <select value={endpoint} onChange={(event) => setEndpoint(event.currentTarget.value)}>
          {endpoints.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
        <span class="hint">The url of every line, as in the first one</span>
      </label>
      <div class="row wide">
        <button type="button" class="primary" disabled={!file || isSending} onClick={start}>
          {isSending ? "Sending" : "Start"}
        </button>
      </div>
    </section>
  );
}

async function readBatches(): Promise<BatchList | "off"> {
  try {
    return await client.batches();
  } catch (error) {
    if (error instanceof RequestError && error.status === 404) return "off";
    throw error;
  }
}

function isMoving(list: BatchList | "off"): boolean {
  return list !== "off" && !list.data.every(isOver);
}
