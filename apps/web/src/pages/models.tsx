// The Models page: loaded models, those on this machine, those that could run here and how fast, the hub, and files
// elsewhere. The server provides the list and does the work.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { ListedModel, ModelList } from "../api-types.ts";
import { CacheCard } from "../components/cache-card.tsx";
import { HubSearch } from "../components/hub-search.tsx";
import { SpeedNote } from "../components/model-fit.tsx";
import { ListedRow, ServedRow } from "../components/model-rows.tsx";
import { OpenFile } from "../components/open-file.tsx";
import { Trouble } from "../components/trouble.tsx";
import { bytesText } from "../state/format.ts";
import { isBusy, models, refreshModels, refreshNow } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { useStore } from "../state/store.ts";

export function ModelsPage(): JSX.Element {
  const { models: all, served, loaded, place, isLocal, problem } = useStore(models);
  useEffect(() => void attempt(refreshModels), []);
  const isHere = ({ state }: ListedModel): boolean => state !== "partial" && state !== "absent";
  const here = all.filter((model) => !model.served && isHere(model));
  const others = all.filter((model) => !model.served && !isHere(model));
  return (
    <div class="facts">
      <header class="facts-head">
        <h1>Models</h1>
        <p>
          A model must be loaded before it can answer. Several can be loaded at once, as long as
          they fit in memory.
        </p>
        {loaded && <Places place={place} />}
        {problem !== null && <Trouble onAgain={refreshNow}>{problem}</Trouble>}
      </header>
      <section class="card">
        <h2>Loaded</h2>
        {loaded && served.length === 0 && <p>None. Load one below.</p>}
        <ul class="models">
          {served.map((model) => (
            <ServedRow
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
          <Rows models={here} />
        </section>
      )}
      <section class="card">
        <h2>Open a file</h2>
        {isLocal ? (
          <OpenFile />
        ) : (
          <p class="hint">
            This Lantern server can be reached from other machines, so it opens no paths. On its own
            machine, “lantern serve -m PATH” opens a file.
          </p>
        )}
      </section>
      <CacheCard />
      <section class="card">
        <h2>What could run here</h2>
        <Downloads models={others} />
      </section>
      <section class="card">
        <h2>Search Hugging Face</h2>
        <HubSearch />
      </section>
    </div>
  );
}

function Places({ place }: { place: ModelList["place"] }): JSX.Element {
  const { memoryBytes, freeMemoryBytes, usedBytes, freeBytes, folder } = place;
  return (
    <p class="hint path">
      Memory: {bytesText(freeMemoryBytes)} of {bytesText(memoryBytes)} free. Disk: downloaded models
      take {bytesText(usedBytes)}
      {folder === null ? "" : ` in ${folder}`}
      {freeBytes === undefined ? "" : `, ${bytesText(freeBytes)} are free`}.
    </p>
  );
}

function Rows({ models: list }: { models: readonly ListedModel[] }): JSX.Element {
  return (
    <ul class="models">
      {list.map((model) => (
        <ListedRow key={model.name} model={model} />
      ))}
    </ul>
  );
}

/** Rows shown before the list is folded. */
const firstRows = 6;

/** Best first, in the server's order; models that cannot run here are folded away. */
function Downloads({ models: list }: { models: readonly ListedModel[] }): JSX.Element {
  const canRun = list.filter((model) => model.fit?.fits !== "no" || isBusy(model));
  const cannot = list.filter((model) => !canRun.includes(model));
  const best = canRun.find(({ chat, fit }) => chat && fit?.fits === "now");
  const shown = canRun.filter(
    (model, at) => at < firstRows || model.task !== null || model.state === "partial",
  );
  const more = canRun.filter((model) => !shown.includes(model));
  return (
    <>
      <SpeedNote models={canRun} />
      <ul class="models">
        {shown.map((model) => (
          <ListedRow key={model.name} model={model} isBest={model === best} />
        ))}
      </ul>
      {more.length > 0 && (
        <details>
          <summary>{more.length} more that fit</summary>
          <Rows models={more} />
        </details>
      )}
      {cannot.length > 0 && (
        <details>
          <summary>
            {cannot.length} more {cannot.length === 1 ? "does" : "do"} not fit in this machine’s
            memory
          </summary>
          <Rows models={cannot} />
        </details>
      )}
    </>
  );
}
