// Which of the served models answers: a name if there is one model, otherwise a choice.

import type { JSX } from "preact";
import { models, writing } from "../state/models.ts";
import { hrefOf } from "../state/route.ts";
import { useStore } from "../state/store.ts";

interface Props {
  /** null: the first. */
  model: string | null;
  disabled: boolean;
  onPick(model: string): void;
}

export function ModelPicker({ model, disabled, onPick }: Props): JSX.Element | null {
  const { served: all, loaded } = useStore(models);
  if (!loaded) return null;
  const served = writing(all);
  const chosen = model ?? served[0]?.id ?? "";
  const gone = model !== null && !served.some(({ id }) => id === model);
  if (served.length === 0) return <a href={hrefOf("models")}>Load a model</a>;
  return (
    <select
      class="model-picker"
      aria-label="Model"
      value={chosen}
      disabled={disabled}
      onChange={(event) => onPick(event.currentTarget.value)}
    >
      {gone && <option value={chosen}>{chosen} (not loaded)</option>}
      {served.map(({ id }) => (
        <option key={id} value={id}>
          {id}
        </option>
      ))}
    </select>
  );
}
