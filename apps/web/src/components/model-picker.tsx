// The choice of the model that answers, with the memory of each. A model that is not loaded is loaded when it is
// chosen.

import type { JSX } from "preact";
import type { ModelMemory } from "../api-types.ts";
import { bytesText } from "../state/format.ts";
import { loadModel, models, writing } from "../state/models.ts";
import { hrefOf } from "../state/route.ts";
import { useStore } from "../state/store.ts";

interface Props {
  /** null: the first. */
  model: string | null;
  disabled: boolean;
  onPick(model: string): void;
}

export function ModelPicker({ model, disabled, onPick }: Props): JSX.Element | null {
  const { served: all, memory, loaded } = useStore(models);
  if (!loaded) return null;
  const served = writing(all);
  const chosen = model ?? served[0]?.id ?? "";
  const stateOf = (name: string): string => stateText(memory.find(({ id }) => id === name));
  const unopened = memory.filter(({ id }) => !all.some((one) => one.id === id));
  const isKnown = [...served, ...unopened].some(({ id }) => id === chosen);
  if (served.length + unopened.length === 0) return <a href={hrefOf("models")}>Load a model</a>;
  const pick = (name: string): void => {
    onPick(name);
    if (unopened.some(({ id }) => id === name)) void loadModel(name).catch(() => {});
  };
  const problem = memory.find(({ id }) => id === chosen)?.error;
  return (
    <>
      <select
        class="model-picker"
        aria-label="Model"
        value={chosen}
        disabled={disabled}
        onChange={(event) => pick(event.currentTarget.value)}
      >
        {!isKnown && (
          <option value={chosen}>
            {chosen === "" ? "Choose a model" : `${chosen} (not loaded)`}
          </option>
        )}
        {[...served, ...unopened].map(({ id }) => (
          <option key={id} value={id}>
            {id}
            {stateOf(id)}
          </option>
        ))}
      </select>
      {problem !== undefined && (
        <span class="model-problem" role="alert">
          {problem}
        </span>
      )}
    </>
  );
}

/** " (1.2 GB)", " (not loaded)", " (loading)", " (failed)" */
function stateText(memory: ModelMemory | undefined): string {
  if (!memory) return "";
  if (memory.value === "loaded") return ` (${bytesText(memory.bytes)})`;
  if (memory.value === "loading") return " (loading)";
  return memory.error === undefined ? " (not loaded)" : " (failed)";
}
