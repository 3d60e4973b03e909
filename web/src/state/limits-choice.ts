// The state of the Limits page: the choices made on it, stored in this browser, and the resulting report. The default
// is this machine and the first loaded model, with the bit widths of its file. The arithmetic is src/limits; for an
// unchanged loaded model its cost comes from the server, so that both give the same numbers.

import { type NamedShape, namedShapes } from "../../../src/limits/configs.ts";
import { type Device, deviceAt, type MachineMeasurement } from "../../../src/limits/device.ts";
import { devices } from "../../../src/limits/devices.ts";
import type { LimitsModel } from "../../../src/limits/limits-model.ts";
import { shapeState, withKvTimes } from "../../../src/limits/memory.ts";
import { shapeCost, withKvBits } from "../../../src/limits/model-cost.ts";
import { type LimitsReport, limitsReport } from "../../../src/limits/report.ts";
import { type ModelShape, withKvHeads } from "../../../src/limits/shape.ts";

/** The choices; missing ones are defaults. */
export interface LimitsChoice {
  model?: string;
  device?: string;
  /** Bits. */
  weights?: number;
  kv?: number;
  kvHeads?: number;
  context?: number;
}

/** A model that the server has loaded. */
export interface LoadedModel {
  readonly id: string;
  readonly threads: number;
  readonly contextSize: number;
  readonly report: LimitsReport;
  /** The report is for the device that runs this model, not for one of the table. */
  readonly isHere: boolean;
}

/** Everything that the page knows. */
export interface LimitsFacts {
  readonly loaded: readonly LoadedModel[];
  /** null: not measured, or not known yet. */
  readonly machine: MachineMeasurement | null;
}

/** The choices with defaults filled in, and their result. */
export interface LimitsView {
  readonly model: string;
  readonly device: string;
  readonly shape: ModelShape;
  /** 0: as in the file. */
  readonly weights: number;
  readonly storedBits: number | undefined;
  readonly kv: number;
  readonly kvHeads: number;
  readonly context: number;
  readonly report: LimitsReport;
}

export const thisMachine = "this machine";
/** A device of the table for requesting the shapes of loaded models, if this machine was not measured. */
export const anyDevice = "rtx4090";
const anyModel = "qwen2.5-7b";
const [namedBits, namedContext, halfBits] = [4, 8192, 16];

const prefix = "loaded ";

export function loadedId(id: string): string {
  return prefix + id;
}

export function limitsView(choice: LimitsChoice, { loaded, machine }: LimitsFacts): LimitsView {
  const named = namedShapes.find(({ id }) => id === choice.model);
  const wanted = loaded.find(({ id }) => loadedId(id) === choice.model);
  const own = wanted ?? (named ? undefined : loaded[0]);
  const other = named ?? namedShapes.find(({ id }) => id === anyModel)!;
  const isHere = own?.isHere || machine !== null;
  const tableDevice = devices.find(({ id }) => id === choice.device);
  const device = tableDevice ?? (isHere ? undefined : devices.find(({ id }) => id === anyDevice)!);
  const made = own ? loadedModel(own, choice) : namedModel(other, choice);
  const { storedBytes } = made.model.cost;
  const context = choice.context ?? own?.contextSize ?? namedContext;
  return {
    model: own ? loadedId(own.id) : other.id,
    device: device?.id ?? thisMachine,
    shape: own?.report.model.shape ?? other.shape,
    weights: made.weights,
    storedBits: own?.report.model.bits.weights,
    kv: made.model.bits.kv,
    kvHeads: made.model.shape.kvHeads,
    context,
    report: limitsReport(made.model, device ?? here(own, made.isStored, storedBytes, machine), {
      context,
    }),
  };
}

/** The device that runs the model; with other bit widths, the processor. */
function here(
  own: LoadedModel | undefined,
  isStored: boolean,
  storedBytes: number,
  machine: MachineMeasurement | null,
): Device {
  if (own?.isHere && (isStored || machine === null || own.report.device.id !== "this")) {
    return own.report.device;
  }
  return deviceAt(machine!, own?.threads ?? machine!.cores, storedBytes);
}

interface MadeModel {
  model: LimitsModel;
  /** 0: as stored. */
  weights: number;
  isStored: boolean;
}

function loadedModel({ report }: LoadedModel, choice: LimitsChoice): MadeModel {
  const { model, cost } = report;
  const { weights = 0, kv = model.bits.kv, kvHeads } = choice;
  if (weights === 0 && (kvHeads === undefined || kvHeads === model.shape.kvHeads)) {
    const bits = { ...model.bits, kv };
    const changed = { ...model, bits, kvText: bitsText(kv) };
    return {
      model: {
        ...changed,
        cost: withKvBits(cost, model.bits.kv, kv),
        state: withKvTimes(model.state, kv / model.bits.kv),
      },
      weights: 0,
      isStored: true,
    };
  }
  const bits = weights === 0 ? model.bits.weights : weights;
  const made = shapeModel(model.name, model.shape, bits, kv, kvHeads);
  const times = (kv / model.bits.kv) * (made.shape.kvHeads / model.shape.kvHeads);
  const state = withKvTimes(model.state, times);
  return { model: { ...made, state }, weights, isStored: false };
}

function namedModel({ name, shape }: NamedShape, choice: LimitsChoice): MadeModel {
  // "As stored" is only for files.
  const weights = choice.weights || namedBits;
  const model = shapeModel(name, shape, weights, choice.kv ?? halfBits, choice.kvHeads);
  return { model, weights, isStored: false };
}

function shapeModel(
  name: string,
  own: ModelShape,
  weights: number,
  kv: number,
  kvHeads: number | undefined,
): LimitsModel {
  const fits = kvHeads !== undefined && own.heads % kvHeads === 0;
  const shape = fits ? withKvHeads(own, kvHeads) : own;
  const bits = { weights, kv };
  return {
    name,
    source: "built-in configuration",
    shape,
    weightsText: bitsText(weights),
    kvText: bitsText(kv),
    bits,
    cost: shapeCost(shape, bits),
    state: shapeState(shape, kv),
  };
}

export function bitsText(bits: number): string {
  return `${Number(bits.toFixed(2))} bits`;
}

const key = "lantern-limits";

/** The stored choices, without anything that is not a choice. */
export function rememberedChoice(): LimitsChoice {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(key) ?? "{}");
    return checkedChoice(found);
  } catch {
    return {}; // not ours, or storage is disabled
  }
}

export function rememberChoice(choice: LimitsChoice): void {
  try {
    localStorage.setItem(key, JSON.stringify(choice));
  } catch {
    // Storage is full or disabled: the choices last until the page is closed.
  }
}

function checkedChoice(found: unknown): LimitsChoice {
  const choice: Record<string, unknown> = {};
  const fields = Object(found) as Record<string, unknown>;
  for (const name of ["model", "device"]) {
    if (typeof fields[name] === "string") choice[name] = fields[name];
  }
  const inRange = (value: unknown, most: number): boolean =>
    typeof value === "number" && Number.isFinite(value) && value > 0 && value <= most;
  if (inRange(fields.weights, 64)) choice.weights = fields.weights;
  if (inRange(fields.kv, 64)) choice.kv = fields.kv;
  if (inRange(fields.kvHeads, 1024) && Number.isInteger(fields.kvHeads)) {
    choice.kvHeads = fields.kvHeads;
  }
  if (inRange(fields.context, 1 << 24) && Number.isInteger(fields.context)) {
    choice.context = fields.context;
  }
  return choice as LimitsChoice;
}
