// The Hugging Face hub: a search finds repositories, a repository (or a pasted URL) shows its files, a file is
// downloaded.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { sentence } from "../api.ts";
import type { LibraryFinding, LibraryVariant, ListedModel } from "../api-types.ts";
import { client } from "../state/connection.ts";
import { bytesText, countText } from "../state/format.ts";
import { downloadModel, models } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { useStore } from "../state/store.ts";
import { Icon } from "./icon.tsx";

/** The result of the last search. */
type Found =
  | { kind: "repositories"; list: LibraryFinding[] }
  | { kind: "files"; repository: string; list: LibraryVariant[] }
  | { kind: "problem"; text: string };

/** "owner/repo", "hf:…" and URLs name a repository; everything else is a search. */
function namesRepository(text: string): boolean {
  return /^(hf:|https?:\/\/)/i.test(text) || /^[\w.-]+\/[\w.-]+(:[\w.-]+)?$/.test(text);
}

/** Whether the name identifies one file. */
function namesFile(text: string): boolean {
  return /\.gguf(\?|$)/i.test(text) || /^(hf:)?[\w.-]+\/[\w.-]+:[\w.-]+$/.test(text);
}

export function HubSearch(): JSX.Element {
  const [text, setText] = useState("");
  const [found, setFound] = useState<Found | null>(null);
  const [isBusy, setIsBusy] = useState(false);
  const ask = async (work: () => Promise<Found>): Promise<void> => {
    setIsBusy(true);
    try {
      setFound(await work());
    } catch (error) {
      setFound({ kind: "problem", text: sentence(error) });
    }
    setIsBusy(false);
  };
  const showFiles = (repository: string): Promise<void> =>
    ask(async () => ({ kind: "files", repository, list: await client.variants(repository) }));
  const submit = async (): Promise<void> => {
    const wanted = text.trim();
    if (wanted === "") return;
    if (namesFile(wanted)) return void (await attempt(() => downloadModel(wanted)));
    if (namesRepository(wanted)) return await showFiles(wanted);
    await ask(async () => ({ kind: "repositories", list: await client.searchHub(wanted) }));
  };
  return (
    <>
      <form
        class="hub"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <label class="field">
          <span class="field-label">Words, owner/repository, or the address of its page</span>
          <span class="row">
            <input
              value={text}
              placeholder="qwen3 4b"
              spellcheck={false}
              onInput={(event) => setText(event.currentTarget.value)}
            />
            <button type="submit" disabled={isBusy || text.trim() === ""}>
              <Icon name="search" /> {isBusy ? "Asking…" : "Search"}
            </button>
          </span>
        </label>
      </form>
      {found?.kind === "problem" && <Problem text={found.text} />}
      {found?.kind === "repositories" && (
        <Repositories list={found.list} onPick={(repository) => void showFiles(repository)} />
      )}
      {found?.kind === "files" && <Files repository={found.repository} list={found.list} />}
    </>
  );
}

/** If the hub is out of reach, one model can still be downloaded from elsewhere. */
function Problem({ text }: { text: string }): JSX.Element {
  const fallback = useStore(models, (now) => now.models.find(isFallback));
  return (
    <div role="status">
      <p class="ending">{text}</p>
      {fallback && /could not be reached/.test(text) && (
        <p>
          {fallback.name} does not come from Hugging Face: {fallback.description}.{" "}
          <button
            type="button"
            class="link"
            onClick={() => void attempt(() => downloadModel(fallback.name))}
          >
            Download {fallback.name}
          </button>
        </p>
      )}
    </div>
  );
}

function isFallback({ chat, state, source }: ListedModel): boolean {
  return chat && state === "absent" && source.startsWith("npm ");
}

function Repositories({
  list,
  onPick,
}: {
  list: readonly LibraryFinding[];
  onPick(repository: string): void;
}): JSX.Element {
  if (list.length === 0) return <p role="status">Nothing found. Try fewer words.</p>;
  return (
    <ul class="models">
      {list.map(({ repo, downloads, likes, gated }) => (
        <li key={repo}>
          <div class="model-facts">
            <h3>{repo}</h3>
            <p class="hint">
              {countText(downloads)} downloads, {likes} like{likes === 1 ? "" : "s"}
              {gated ? ". Accept its licence on its page first." : ""}
            </p>
          </div>
          <button type="button" onClick={() => onPick(repo)}>
            Show files
          </button>
        </li>
      ))}
    </ul>
  );
}

function Files({
  repository,
  list,
}: {
  repository: string;
  list: readonly LibraryVariant[];
}): JSX.Element {
  return (
    <section aria-label={`Files of ${repository}`}>
      <h3>{repository}</h3>
      <ul class="models">
        {list.map(({ name, label, bytes, files, fits, suggested }) => (
          <li key={name}>
            <div class="model-facts">
              <h4>
                {label} {suggested && <span class="tag best">suits this machine</span>}
              </h4>
              <p class="hint">
                {bytesText(bytes)}
                {files > 1 ? ` in ${files} parts` : ""}
                {fits ? "" : ". Does not fit in this machine’s memory."}
              </p>
            </div>
            <button
              type="button"
              class={suggested ? "primary" : ""}
              onClick={() => void attempt(() => downloadModel(name))}
            >
              <Icon name="download" /> Download
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
