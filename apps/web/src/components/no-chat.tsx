// Shown on the Chat page if no model can chat: no model is loaded, it was not trained for chat, or the conversation's
// model is not loaded now. With links to the pages that help.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { LoadOptions, ServedModel } from "../api-types.ts";
import { isBusy, loadModel, models } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { hrefOf } from "../state/route.ts";
import { useStore } from "../state/store.ts";

type Template = NonNullable<LoadOptions["chatTemplate"]>;
const templates: readonly Template[] = ["chatml", "llama2", "zephyr"];

/** The reason why no model can answer; null: one can. */
export function chatProblem(served: ServedModel | undefined): "no model" | "no template" | null {
  if (!served) return "no model";
  return served.info.hasChatTemplate ? null : "no template";
}

interface NoChatProps {
  served: ServedModel | undefined;
  wanted: string | null;
  /** The next message loads it again. */
  reloads: boolean;
}

export function NoChat({ served, wanted, reloads }: NoChatProps): JSX.Element {
  if (!served) return <NotLoaded wanted={wanted} reloads={reloads} />;
  return <NoTemplate name={served.id} />;
}

/** "Loading far… 40%"; undefined: it is not being loaded. */
function useProgress(name: string | null): string | undefined {
  const task = useStore(models, (now) => now.models.find((one) => one.name === name)?.task);
  if (task?.kind !== "load" || task.error !== null) return undefined;
  const share = task.totalBytes > 0 ? task.loadedBytes / task.totalBytes : 0;
  return `Loading ${name}… ${Math.floor(share * 100)}%`;
}

/** For a story whose model is not loaded now: the next step. */
export function NotLoadedText({ name }: { name: string }): JSX.Element {
  const progress = useProgress(name);
  return (
    <>
      {progress ??
        `${name} is not loaded. It is loaded again when the story goes on; you can also choose another model above.`}
    </>
  );
}

function NotLoaded({ wanted, reloads }: Omit<NoChatProps, "served">): JSX.Element {
  const listed = useStore(models, (now) => now.models.find(({ name }) => name === wanted));
  const progress = useProgress(wanted);
  const here = listed !== undefined && listed.state !== "partial" && listed.state !== "absent";
  return (
    <section class="card notice-card" role="status">
      <h2>{wanted === null ? "No model is loaded" : `${wanted} is not loaded`}</h2>
      <p>{progress ?? advice(wanted, reloads)}</p>
      <div class="row wrap">
        {listed && here && (
          <button
            type="button"
            class="primary"
            disabled={isBusy(listed)}
            onClick={() => void attempt(() => loadModel(listed.name))}
          >
            {isBusy(listed) ? "Loading…" : `Load ${listed.name}`}
          </button>
        )}
        <a class="button" href={hrefOf("models")}>
          See all models
        </a>
      </div>
    </section>
  );
}

function advice(wanted: string | null, reloads: boolean): string {
  if (wanted === null) return "A model must be loaded before it can answer.";
  return reloads
    ? "This conversation was held with it. It is loaded again when you send a message; you can also choose another model above."
    : "This conversation was held with it. Load it again, or choose another model above.";
}

function NoTemplate({ name }: { name: string }): JSX.Element {
  const [template, setTemplate] = useState<Template>("chatml");
  const listed = useStore(models, (now) => now.models.find((model) => model.name === name));
  return (
    <section class="card notice-card">
      <h2>{name} does not chat</h2>
      <p>
        It has no chat template, so it can only continue a text. Download a model that chats (the
        smallest are 150 to 700 MB), or write a story with this one.
      </p>
      <div class="row wrap">
        <a class="button primary" href={hrefOf("models")}>
          Get a chat model
        </a>
        <a class="button" href={hrefOf("story")}>
          Write a story
        </a>
      </div>
      {listed && (
        <details>
          <summary>Was it trained to chat, although its file has no chat template?</summary>
          <p class="hint">
            Then load it again with the template that it was trained with. With another template,
            its answers make no sense.
          </p>
          <div class="row wrap">
            <select
              aria-label="Chat template"
              value={template}
              onChange={(event) => setTemplate(event.currentTarget.value as Template)}
            >
              {templates.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
            <button
              type="button"
              disabled={isBusy(listed)}
              onClick={() => void attempt(() => loadModel(name, { chatTemplate: template }))}
            >
              {isBusy(listed) ? "Loading…" : "Load it with this template"}
            </button>
          </div>
        </details>
      )}
    </section>
  );
}
