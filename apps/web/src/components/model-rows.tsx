// One model of the Models page: loaded, on this machine, or available for download, with its actions.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ListedModel, LoadOptions, ServedModel } from "../api-types.ts";
import { bytesText, countText } from "../state/format.ts";
import {
  cancelTask,
  deleteModel,
  downloadModel,
  isBusy,
  loadModel,
  unloadModel,
} from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { preferModel } from "../state/preferences.ts";
import { go } from "../state/route.ts";
import { Confirm } from "./dialog.tsx";
import { Icon } from "./icon.tsx";
import { FitLine } from "./model-fit.tsx";
import { ModelOptions } from "./model-options.tsx";
import { Progress } from "./progress.tsx";

export function ServedRow({
  model,
  listed,
}: {
  model: ServedModel;
  listed: ListedModel | undefined;
}): JSX.Element {
  const [open, setOpen] = useState<"unload" | "options" | null>(null);
  const { id, info } = model;
  const use = (): void => {
    const mode = info.hasChatTemplate ? "chat" : "story";
    preferModel(mode, id);
    go(mode);
  };
  return (
    <li>
      <div class="model-facts">
        <h3>{id}</h3>
        <p>
          {listed?.description ?? info.name}
          {abilityText(info)}
        </p>
        <p class="hint">
          {info.architecture}, {countText(info.parameters)} parameters, {info.weightType}, context
          of {info.contextSize.toLocaleString("en")} tokens
        </p>
        <p class="hint">
          Memory: {bytesText(info.weightBytes)} for the weights, up to {bytesText(info.stateBytes)}{" "}
          for the KV cache
        </p>
        {(info.warnings ?? []).map((warning) => (
          <p class="ending" key={warning}>
            {warning}
          </p>
        ))}
        {listed?.task?.error && <p class="ending">{listed.task.error}</p>}
      </div>
      {listed && isBusy(listed) ? (
        <Task model={listed} />
      ) : (
        <div class="row wrap">
          {info.generates && (
            <button type="button" class="primary" onClick={use}>
              {info.hasChatTemplate ? "Chat" : "Write a story"}
            </button>
          )}
          {listed && (
            <button type="button" onClick={() => setOpen("options")}>
              Options
            </button>
          )}
          <button type="button" onClick={() => setOpen("unload")}>
            Unload
          </button>
        </div>
      )}
      {open === "options" && (
        <ModelOptions
          name={id}
          before={listed?.options as LoadOptions | undefined}
          loadedBytes={info.weightBytes + info.stateBytes}
          onClose={() => setOpen(null)}
        />
      )}
      {open === "unload" && (
        <Confirm
          title={`Unload ${id}?`}
          text="Its memory is freed. Conversations with it are kept and can continue when it is loaded again."
          action="Unload"
          onClose={() => setOpen(null)}
          onConfirm={() => void attempt(() => unloadModel(id))}
        />
      )}
    </li>
  );
}

/** The abilities of a model that does not chat. */
function abilityText({ generates, hasChatTemplate, embedding }: ServedModel["info"]): string {
  if (generates) return hasChatTemplate ? "" : ". Continues text; does not chat.";
  return embedding?.labels
    ? ". Sorts documents for programs, through /v1/rerank; it writes no text."
    : ". Turns texts into vectors for programs, through /v1/embeddings; it writes no text.";
}

export function ListedRow({
  model,
  isBest = false,
}: {
  model: ListedModel;
  isBest?: boolean;
}): JSX.Element {
  const { name, description, licence, bytes, chat, state, source, task, fit } = model;
  return (
    <li>
      <div class="model-facts">
        <h3>
          {name} {chat && <span class="tag">chat</span>}{" "}
          {isBest && <span class="tag best">best for this machine</span>}
        </h3>
        <p>{description}</p>
        <FitLine fit={fit} />
        <p class="hint">
          {bytes > 0 ? `${bytesText(bytes)}, ` : ""}
          {licence === "unknown" ? "" : `${licence}, `}
          {source}
          {state === "partial" && !task ? ". A download was started and can be resumed." : ""}
        </p>
        {task?.error && <p class="ending">{task.error}</p>}
      </div>
      {isBusy(model) ? <Task model={model} /> : <Actions model={model} />}
    </li>
  );
}

function Actions({ model }: { model: ListedModel }): JSX.Element {
  const { name, state, diskBytes = 0 } = model;
  const [open, setOpen] = useState<"delete" | "options" | null>(null);
  const isHere = state !== "partial" && state !== "absent";
  const isLinked = state === "linked";
  return (
    <div class="row wrap">
      {isHere ? (
        <>
          <button type="button" class="primary" onClick={() => void attempt(() => loadModel(name))}>
            Load
          </button>
          <button type="button" onClick={() => setOpen("options")}>
            Options
          </button>
        </>
      ) : (
        <button type="button" onClick={() => void attempt(() => downloadModel(name))}>
          <Icon name="download" /> {state === "partial" ? "Resume" : "Download"}
        </button>
      )}
      {(diskBytes > 0 || isLinked) && (
        <button
          type="button"
          class="quiet"
          aria-label={isLinked ? `Remove ${name} from the list` : `Delete ${name}`}
          onClick={() => setOpen("delete")}
        >
          <Icon name="trash" />
        </button>
      )}
      {open === "options" && (
        <ModelOptions
          name={name}
          before={model.options as LoadOptions | undefined}
          loadedBytes={0}
          onClose={() => setOpen(null)}
        />
      )}
      {open === "delete" && (
        <Confirm
          title={isLinked ? `Remove ${name} from the list?` : `Delete ${name}?`}
          text={
            isLinked
              ? "The file is kept."
              : `This frees ${bytesText(diskBytes)} on the disk. To use the model again, you must download it again.`
          }
          action={isLinked ? "Remove" : "Delete"}
          onClose={() => setOpen(null)}
          onConfirm={() => void attempt(() => deleteModel(name))}
        />
      )}
    </div>
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
