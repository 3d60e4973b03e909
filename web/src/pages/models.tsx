// The Models page: what is loaded, what is on this machine, what could be downloaded; downloads and loads with their
// progress. The list and the work are the server's.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ListedModel, ServedModel } from "../api-types.ts";
import { Confirm } from "../components/dialog.tsx";
import { Icon } from "../components/icon.tsx";
import { Progress } from "../components/progress.tsx";
import { bytesText, countText } from "../state/format.ts";
import {
  cancelTask,
  downloadModel,
  isBusy,
  loadModel,
  models,
  refreshModels,
  unloadModel,
} from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { prefer } from "../state/preferences.ts";
import { go } from "../state/route.ts";
import { useStore } from "../state/store.ts";

export function ModelsPage(): JSX.Element {
  const { models: all, served, loaded } = useStore(models);
  useEffect(() => void attempt(refreshModels), []);
  const here = all.filter(
    ({ state, served: isServed }) => !isServed && (state === "installed" || state === "cached"),
  );
  const others = all.filter((model) => !model.served && !here.includes(model));
  return (
    <div class="facts">
      <header class="facts-head">
        <h1>Models</h1>
        <p>A model has to be in memory to answer. Several can be loaded at once if they fit.</p>
      </header>
      <section class="card">
        <h2>Loaded</h2>
        {loaded && served.length === 0 && <p>None. Load one below.</p>}
        <ul class="models">
          {served.map((model) => (
            <Served
              key={model.id}
              model={model}
              listed={all.find(({ name }) => name === model.id)}
            />
          ))}
        </ul>
      </section>
      {here.length > 0 && (
        <section class="card">
          <h2>On this machine</h2>
          <ul class="models">
            {here.map((model) => (
              <Listed key={model.name} model={model} />
            ))}
          </ul>
        </section>
      )}
      <section class="card">
        <h2>To download</h2>
        <ul class="models">
          {others.map((model) => (
            <Listed key={model.name} model={model} />
          ))}
        </ul>
        <HubForm />
      </section>
    </div>
  );
}

function Served({
  model,
  listed,
}: {
  model: ServedModel;
  listed: ListedModel | undefined;
}): JSX.Element {
  const [asking, setAsking] = useState(false);
  const { id, info } = model;
  const use = (): void => {
    prefer({ model: id });
    go(info.hasChatTemplate ? "chat" : "story");
  };
  return (
    <li>
      <div class="model-facts">
        <h3>{id}</h3>
        <p>
          {listed?.description ?? info.name}
          {info.hasChatTemplate ? "" : ". Continues text; does not chat."}
        </p>
        <p class="hint">
          {info.architecture}, {countText(info.parameters)} parameters, {info.weightType},{" "}
          {bytesText(info.weightBytes)} of weights, context of{" "}
          {info.contextSize.toLocaleString("en")} tokens
        </p>
      </div>
      <div class="row wrap">
        <button type="button" class="primary" onClick={use}>
          {info.hasChatTemplate ? "Chat" : "Write a story"}
        </button>
        <button type="button" onClick={() => setAsking(true)}>
          Unload
        </button>
      </div>
      {asking && (
        <Confirm
          title={`Unload ${id}?`}
          text="Its memory is freed. Conversations with it stay, and go on when it is loaded again."
          action="Unload"
          onClose={() => setAsking(false)}
          onConfirm={() => void attempt(() => unloadModel(id))}
        />
      )}
    </li>
  );
}

function Listed({ model }: { model: ListedModel }): JSX.Element {
  const { name, description, licence, bytes, chat, state, source, task } = model;
  return (
    <li>
      <div class="model-facts">
        <h3>
          {name} {chat && <span class="tag">chat</span>}
        </h3>
        <p>{description}</p>
        <p class="hint">
          {bytes > 0 ? `${bytesText(bytes)}, ` : ""}
          {licence}, {source}
          {state === "partial" && !task ? ". A download was begun and can go on." : ""}
        </p>
        {task?.error && <p class="ending">{task.error}</p>}
      </div>
      {isBusy(model) ? <Task model={model} /> : <Start model={model} />}
    </li>
  );
}

function Start({ model: { name, state } }: { model: ListedModel }): JSX.Element {
  if (state === "installed" || state === "cached") {
    return (
      <button type="button" class="primary" onClick={() => void attempt(() => loadModel(name))}>
        Load
      </button>
    );
  }
  return (
    <button type="button" onClick={() => void attempt(() => downloadModel(name))}>
      <Icon name="download" /> {state === "partial" ? "Go on" : "Download"}
    </button>
  );
}

function Task({ model: { name, task } }: { model: ListedModel }): JSX.Element {
  const { kind, loadedBytes, totalBytes } = task!;
  const doing = kind === "download" ? "Downloading" : "Loading";
  return (
    <div class="task">
      <Progress share={totalBytes > 0 ? loadedBytes / totalBytes : 0} label={`${doing} ${name}`} />
      <span class="hint">
        {doing}
        {totalBytes > 0 ? `, ${bytesText(loadedBytes)} of ${bytesText(totalBytes)}` : "…"}
      </span>
      <button type="button" class="link" onClick={() => void attempt(() => cancelTask(name))}>
        Stop
      </button>
    </div>
  );
}

function HubForm(): JSX.Element {
  const [name, setName] = useState("");
  return (
    <form
      class="hub"
      onSubmit={(event) => {
        event.preventDefault();
        const wanted = name.trim();
        if (wanted !== "")
          void attempt(() => downloadModel(wanted.startsWith("hf:") ? wanted : `hf:${wanted}`));
      }}
    >
      <label class="field">
        <span class="field-label">Any other GGUF file of the Hugging Face hub</span>
        <span class="row">
          <input
            value={name}
            placeholder="owner/repository/file.gguf"
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <button type="submit" disabled={name.trim() === ""}>
            Download
          </button>
        </span>
      </label>
    </form>
  );
}
