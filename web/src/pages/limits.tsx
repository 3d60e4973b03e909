// The Limits page: what hardware allows a model, before anything is bought or downloaded. The arithmetic is src/limits,
// which is pure and runs here as it is; every slider shows its effect at once.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { namedShapes } from "../../../src/limits/configs.ts";
import { type Device, deviceAt, type MachineMeasurement } from "../../../src/limits/device.ts";
import { devices } from "../../../src/limits/devices.ts";
import { shapeCost } from "../../../src/limits/model-cost.ts";
import { type LimitsModel, type LimitsReport, limitsReport } from "../../../src/limits/report.ts";
import { type ModelShape, withKvHeads } from "../../../src/limits/shape.ts";
import { LimitsResults } from "../components/limits-results.tsx";
import { Stops } from "../components/stops.tsx";
import { client } from "../state/connection.ts";
import { bytesText, countText } from "../state/format.ts";
import { models } from "../state/models.ts";
import { useStore } from "../state/store.ts";

const weightStops = [2, 3, 4, 5, 6, 8, 16, 32];
const kvStops = [4, 8, 16, 32];
const contextStops = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072];

interface Choice {
  model: string;
  device: string;
  weights: number;
  kv: number;
  /** undefined: as the model has them. */
  kvHeads: number | undefined;
  context: number;
}

interface KnownShape {
  id: string;
  name: string;
  shape: ModelShape;
}

const thisMachine = "this machine";

export function LimitsPage(): JSX.Element {
  const own = useLoadedShapes();
  const machine = useMachine();
  const shapes = [...own, ...namedShapes];
  const [choice, setChoice] = useState<Choice>({
    model: "qwen2.5-7b",
    device: "rtx4090",
    weights: 4,
    kv: 16,
    kvHeads: undefined,
    context: 8192,
  });
  const change = (part: Partial<Choice>): void => setChoice((before) => ({ ...before, ...part }));
  const known = shapes.find(({ id }) => id === choice.model) ?? namedShapes[0]!;
  const report = useMemo(() => reportOf(known, choice, machine), [known, choice, machine]);
  const headStops = divisors(known.shape.heads);
  return (
    <div class="facts">
      <header class="facts-head">
        <h1>Limits</h1>
        <p>
          What the hardware allows, whoever writes the software: every token reads all weights and
          the KV cache, every prompt multiplies with all weights. No program is faster than this.
        </p>
      </header>
      <section class="card controls">
        <label class="field">
          <span class="field-label">Model</span>
          <select
            value={known.id}
            onChange={(event) => change({ model: event.currentTarget.value, kvHeads: undefined })}
          >
            {own.length > 0 && (
              <optgroup label="Loaded here">
                {own.map(({ id, name }) => (
                  <option key={id} value={id}>
                    {name}
                  </option>
                ))}
              </optgroup>
            )}
            <optgroup label="Known by name">
              {namedShapes.map(({ id, name }) => (
                <option key={id} value={id}>
                  {name}
                </option>
              ))}
            </optgroup>
          </select>
          <span class="hint">
            {countText(report.parameters.total)} parameters, {known.shape.layers} layers,{" "}
            {known.shape.heads} heads
          </span>
        </label>
        <label class="field">
          <span class="field-label">Device</span>
          <select
            value={choice.device}
            onChange={(event) => change({ device: event.currentTarget.value })}
          >
            {machine && <option value={thisMachine}>This machine: {machine.cpu}</option>}
            {devices.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
                {id.endsWith("-decimal") ? " (decimal units)" : ""}
              </option>
            ))}
          </select>
          <span class="hint">{report.device.source}</span>
        </label>
        <Stops
          label="Bits of a weight"
          hint={`${bytesText(report.memory.weightBytes)} are read for every token`}
          stops={weightStops}
          value={choice.weights}
          onPick={(weights) => change({ weights })}
        />
        <Stops
          label="Bits of the KV cache"
          hint={`${bytesText(report.memory.kvBytesPerToken)} for every token of the context`}
          stops={kvStops}
          value={choice.kv}
          onPick={(kv) => change({ kv })}
        />
        <Stops
          label="KV heads (GQA)"
          hint={gqaHint(known.shape, choice.kvHeads)}
          stops={headStops}
          value={choice.kvHeads ?? known.shape.kvHeads}
          onPick={(kvHeads) => change({ kvHeads })}
        />
        <Stops
          label="Context"
          hint="The longest prompt and text that is shown"
          stops={contextStops}
          value={choice.context}
          onPick={(context) => change({ context })}
        />
      </section>
      <LimitsResults report={report} />
    </div>
  );
}

function gqaHint(shape: ModelShape, kvHeads: number | undefined): string {
  const now = kvHeads ?? shape.kvHeads;
  const own = now === shape.kvHeads ? "as the model has it" : `the model has ${shape.kvHeads}`;
  return now === shape.heads
    ? `one per query head: no grouping (${own})`
    : `each shared by ${shape.heads / now} query heads (${own})`;
}

function reportOf(
  known: KnownShape,
  choice: Choice,
  machine: MachineMeasurement | null,
): LimitsReport {
  const shape =
    choice.kvHeads === undefined ? known.shape : withKvHeads(known.shape, choice.kvHeads);
  const bits = { weights: choice.weights, kv: choice.kv };
  const isThis = choice.device === thisMachine && machine !== null;
  // Lantern's own kernels multiply quantized weights as 8-bit integers; data sheets are counted in floats.
  const quantizedProducts = isThis ? "int8Ops" : "floatOps";
  const cost = shapeCost(shape, bits, bits.weights < 16 ? quantizedProducts : "floatOps");
  const model: LimitsModel = {
    name: known.name,
    source: "built-in configuration",
    shape,
    weightsText: `${bits.weights} bits`,
    kvText: `${bits.kv} bits`,
    bits,
    cost,
    quantizedProducts,
  };
  const device: Device = isThis
    ? deviceAt(machine, machine.cores, cost.weightBytes)
    : (devices.find(({ id }) => id === choice.device) ?? devices[0]!);
  return limitsReport(model, device, { context: choice.context });
}

function divisors(number: number): number[] {
  return Array.from({ length: number }, (_, at) => at + 1).filter((one) => number % one === 0);
}

/** The shapes of the models that are loaded, as far as the server knows their files. */
function useLoadedShapes(): readonly KnownShape[] {
  const served = useStore(models, (now) => now.served);
  const [shapes, setShapes] = useState<readonly KnownShape[]>([]);
  useEffect(() => {
    const ask = async (): Promise<void> => {
      const reports = await Promise.allSettled(served.map(({ id }) => client.limits(id)));
      setShapes(
        reports.flatMap((result, at) =>
          result.status === "fulfilled"
            ? [
                {
                  id: `loaded ${served[at]!.id}`,
                  name: served[at]!.id,
                  shape: result.value.model.shape,
                },
              ]
            : [],
        ),
      );
    };
    void ask();
  }, [served]);
  return shapes;
}

function useMachine(): MachineMeasurement | null {
  const [machine, setMachine] = useState<MachineMeasurement | null>(null);
  useEffect(
    () =>
      void client.machine().then(
        (view) => setMachine(view.machine),
        () => {},
      ),
    [],
  );
  return machine;
}
