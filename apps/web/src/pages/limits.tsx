// The Limits page: how fast hardware can run a model at most, before anything is bought or downloaded. It opens with
// this machine and the loaded model. The arithmetic is src/limits, which is pure and runs in the page; every slider
// has an immediate effect.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { messageOf } from "../../../../src/base/errors.ts";
import type { MachineMeasurement } from "../../../../src/index.ts";
import { namedShapes } from "../../../../src/limits/configs.ts";
import { devices } from "../../../../src/limits/devices.ts";
import type { LimitsModel } from "../../../../src/limits/limits-model.ts";
import type { ModelShape } from "../../../../src/limits/shape.ts";
import type { ServedModel } from "../api-types.ts";
import { Glossary } from "../components/glossary.tsx";
import { LimitsResults } from "../components/limits-results.tsx";
import { LimitsServing } from "../components/limits-serving.tsx";
import { LimitsSpeculation } from "../components/limits-speculation.tsx";
import { OwnModel } from "../components/own-model.tsx";
import { Stops, withStop } from "../components/stops.tsx";
import { client } from "../state/connection.ts";
import { bytesText, countText } from "../state/format.ts";
import {
  anyDevice,
  bitsText,
  type LimitsChoice,
  type LimitsView,
  type LoadedModel,
  limitsView,
  loadedId,
  rememberChoice,
  rememberedChoice,
  thisMachine,
} from "../state/limits-choice.ts";
import { models } from "../state/models.ts";
import { firstOwn, type OwnChoice, ownId, ownModel } from "../state/own-model.ts";
import { hrefOf } from "../state/route.ts";
import { useStore } from "../state/store.ts";

const weightStops = [2, 3, 4, 5, 6, 8, 16, 32];
const kvStops = [4, 8, 16, 32];
const contextStops = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072];

export function LimitsPage(): JSX.Element {
  const facts = useFacts();
  const [choice, setChoice] = useState<LimitsChoice>(rememberedChoice);
  const put = (next: LimitsChoice): void => {
    setChoice(next);
    rememberChoice(next);
  };
  const { own = firstOwn } = choice;
  const isOwn = choice.model === ownId;
  const { model: mine, problem } = useOwn(isOwn ? own : undefined);
  const view = useMemo(
    () => facts && limitsView(choice, { ...facts, mine }),
    [facts?.loaded, facts?.machine, choice, mine],
  );
  const isChanged = Object.keys(choice).length > 0;
  return (
    <div class="facts" aria-busy={view === null}>
      <header class="facts-head">
        <h1>Limits</h1>
        <p>
          The fastest that hardware can run a model, whatever the program: each new token has to
          read all weights and the KV cache from memory, and a prompt has to be multiplied by all
          weights. No program that generates one token at a time is faster, except with a model so
          small that the chip's own cache holds it.
        </p>
      </header>
      {facts && !facts.machine && (
        <p class="card">
          <span>
            This machine has not been measured yet, so its limits are not known.{" "}
            <a href={hrefOf("machine")}>Measure it</a>: it takes 8 seconds.
          </span>
        </p>
      )}
      {facts && view && (
        <>
          <Controls
            view={view}
            isOwn={isOwn}
            loaded={facts.loaded}
            machine={facts.machine}
            onChange={(part) => put({ ...choice, ...part })}
            onModel={(model) => {
              const { device, own: before } = choice;
              put({ model, ...(device && { device }), ...(before && { own: before }) });
            }}
            onReset={isChanged ? () => put({}) : undefined}
          />
          {isOwn && (
            <OwnModel
              own={own}
              model={mine}
              problem={problem}
              onChange={(next) => put({ ...choice, own: next })}
            />
          )}
          {(!isOwn || mine !== undefined) && (
            <>
              <LimitsResults report={view.report} />
              <LimitsSpeculation view={view} onChange={(part) => put({ ...choice, ...part })} />
              <LimitsServing view={view} onChange={(part) => put({ ...choice, ...part })} />
            </>
          )}
          <Glossary />
        </>
      )}
    </div>
  );
}

interface ControlsProps {
  view: LimitsView;
  /** A configuration of the user's own is chosen, whether one could be made or not. */
  isOwn: boolean;
  loaded: readonly LoadedModel[];
  machine: MachineMeasurement | null;
  onChange(part: LimitsChoice): void;
  /** Selects another model, with its own bit widths and context. */
  onModel(model: string): void;
  onReset: (() => void) | undefined;
}

function Controls({
  view,
  isOwn,
  loaded,
  machine,
  onChange,
  onModel,
  onReset,
}: ControlsProps): JSX.Element {
  const { report, shape, storedBits } = view;
  const hasShape = !isOwn || report.model.parameters === undefined;
  const own = loaded.find(({ id }) => loadedId(id) === view.model);
  const hereName = own?.isHere ? own.report.device.name : machine?.cpu;
  return (
    <section class="card controls">
      <label class="field">
        <span class="field-label">Model</span>
        <select
          value={isOwn ? ownId : view.model}
          onChange={(event) => onModel(event.currentTarget.value)}
        >
          {loaded.length > 0 && (
            <optgroup label="Loaded here">
              {loaded.map(({ id }) => (
                <option key={id} value={loadedId(id)}>
                  {id}
                </option>
              ))}
            </optgroup>
          )}
          <option value={ownId}>A configuration of your own</option>
          <optgroup label="Known by name">
            {namedShapes.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </optgroup>
        </select>
        <span class="hint">
          {countText(report.parameters.total)} parameters, {shape.layers} layers, {shape.heads}{" "}
          heads
        </span>
      </label>
      <label class="field">
        <span class="field-label">Device</span>
        <select
          value={view.device}
          onChange={(event) => onChange({ device: event.currentTarget.value })}
        >
          {hereName !== undefined && <option value={thisMachine}>This machine: {hereName}</option>}
          {devices.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
        <span class="hint">{report.device.source}</span>
      </label>
      <Stops
        label="Bits per weight"
        hint={`${bytesText(report.memory.weightBytes)} are read for every token`}
        stops={storedBits === undefined ? weightStops : [0, ...weightStops]}
        value={view.weights}
        format={(bits) => (bits === 0 ? `as stored: ${bitsText(storedBits!)}` : String(bits))}
        onPick={(weights) => onChange({ weights })}
      />
      <Stops
        label="Bits of the KV cache"
        hint={`${bytesText(report.memory.kvBytesPerToken)} for a token, ${bytesText(report.memory.stateBytes)} for the whole context`}
        stops={withStop(kvStops, view.kv)}
        value={view.kv}
        onPick={(kv) => onChange({ kv })}
      />
      <Stops
        label="KV heads (GQA)"
        hint={gqaHint(shape, view.kvHeads)}
        stops={hasShape ? divisors(shape.heads) : [view.kvHeads]}
        value={view.kvHeads}
        onPick={(kvHeads) => onChange({ kvHeads })}
      />
      <Stops
        label="Context"
        hint="The longest text in the charts, in tokens"
        stops={withStop(contextStops, view.context)}
        value={view.context}
        onPick={(context) => onChange({ context })}
      />
      {onReset && (
        <button type="button" class="quiet wide" onClick={onReset}>
          Back to this machine and the loaded model
        </button>
      )}
    </section>
  );
}

/** The model of a choice: the last valid one, until the next is. */
function useOwn(own: OwnChoice | undefined): { model?: LimitsModel; problem?: string } {
  const [made, setMade] = useState<{ model?: LimitsModel; problem?: string }>({});
  const key = own === undefined ? "" : JSON.stringify(own);
  useEffect(() => {
    if (own === undefined) return;
    let isOld = false;
    ownModel(own).then(
      (model) => !isOld && setMade({ model }),
      (error: unknown) => !isOld && setMade({ problem: messageOf(error) }),
    );
    return () => {
      isOld = true;
    };
  }, [key]);
  return own === undefined ? {} : made;
}

function gqaHint(shape: ModelShape, kvHeads: number): string {
  const own = kvHeads === shape.kvHeads ? "as in the model" : `the model has ${shape.kvHeads}`;
  return kvHeads === shape.heads
    ? `one for each query head: not grouped (${own})`
    : `each shared by ${shape.heads / kvHeads} query heads (${own})`;
}

function divisors(number: number): number[] {
  return Array.from({ length: number }, (_, at) => at + 1).filter((one) => number % one === 0);
}

interface Facts {
  loaded: readonly LoadedModel[];
  machine: MachineMeasurement | null;
}

/** null until the server has reported the loaded model and the measurement, so that the page does not jump between defaults. */
function useFacts(): Facts | null {
  const served = useStore(models, (now) => now.served);
  const [facts, setFacts] = useState<Facts | null>(null);
  useEffect(() => {
    let isOld = false;
    const ask = async (): Promise<void> => {
      const [found, view] = await Promise.all([
        Promise.all(served.map(loadedModel)),
        client.machine().catch(() => null),
      ]);
      if (isOld) return;
      const loaded = found.filter((model) => model !== undefined);
      setFacts({ loaded, machine: view?.machine ?? null });
    };
    void ask();
    return () => {
      isOld = true;
    };
  }, [served]);
  return facts;
}

/** The model on the device it runs on, if that was measured; undefined: the server does not know its file. */
async function loadedModel({ id, info }: ServedModel): Promise<LoadedModel | undefined> {
  const facts = { id, threads: info.backend.threads, contextSize: info.contextSize };
  try {
    return { ...facts, report: await client.limits(id), isHere: true };
  } catch {
    const report = await client.limits(id, anyDevice).catch(() => undefined);
    return report && { ...facts, report, isHere: false };
  }
}
