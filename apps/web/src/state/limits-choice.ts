// The state of the Limits page: the choices made on it, stored in this browser, and the resulting report. The default
// is this machine and the first loaded model, with the bit widths of its file. The arithmetic is src/limits; for an
// unchanged loaded model its cost comes from the server, so that both give the same numbers.

import type { Device, MachineMeasurement } from "../../../../src/index.ts";
import { type NamedShape, namedShapes } from "../../../../src/limits/configs.ts";
import { deviceAt } from "../../../../src/limits/device.ts";
import { devices } from "../../../../src/limits/devices.ts";
import type { LimitsModel } from "../../../../src/limits/limits-model.ts";
import { shapeState, withKvTimes } from "../../../../src/limits/memory.ts";
import {
  type ModelCost,
  shapeCost,
  withKvBits,
  withWeightBits,
} from "../../../../src/limits/model-cost.ts";
import { type LimitsReport, limitsReport } from "../../../../src/limits/report.ts";
import { usualRequest, usualSla } from "../../../../src/limits/serving.ts";
import type { ServingOptions } from "../../../../src/limits/serving-report.ts";
import { type ModelShape, withKvHeads } from "../../../../src/limits/shape.ts";
import { checkedOwn, type OwnChoice, ownId } from "./own-model.ts";

/** The choices; missing ones are defaults. */
export interface LimitsChoice {
  model?: string;
  /** The definition of the model "own". */
  own?: OwnChoice;
  device?: string;
  /** Bits. */
  weights?: number;
  kv?: number;
  kvHeads?: number;
  context?: number;
  /** Speculative decoding: the draft (a model's id, or a share of the model's time), 0 to 1, and 0 for the best. */
  draft?: string;
  acceptance?: number;
  draftTokens?: number;
  /** Many users: their number, their agreement, the lengths of their requests, and an hour's price. */
  users?: number;
  firstTokenMs?: number;
  rate?: number;
  prompt?: number;
  answer?: number;
  price?: number;
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

/** The data that the page has from the server. */
export interface LimitsFacts {
  readonly loaded: readonly LoadedModel[];
  /** null: not measured, or not known yet. */
  readonly machine: MachineMeasurement | null;
  /** Made of the choice "own", with 16 bits. */
  readonly mine?: LimitsModel | undefined;
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
  readonly draft: string;
  /** 0: the best number. */
  readonly askedDraftTokens: number;
  readonly users: number;
  readonly price: number;
  /** Has both a part on speculation and one on many users. */
  readonly report: LimitsReport & Required<Pick<LimitsReport, "speculation" | "serving">>;
}

export const thisMachine = "this machine";
/** A device of the table for requesting the shapes of loaded models, if this machine was not measured. */
export const anyDevice = "rtx4090";
const anyModel = "qwen2.5-7b";
const [namedBits, namedContext, halfBits] = [4, 8192, 16];

/** The acceptance that is usual of a draft from the same family. */
const usualAcceptance = 0.8;
export const freeDraft = "0";
const usualUsers = 8;
const usualPrice = 1;

const prefix = "loaded ";

export function loadedId(id: string): string {
  return prefix + id;
}

export function limitsView(
  choice: LimitsChoice,
  { loaded, machine, mine }: LimitsFacts,
): LimitsView {
  const isMine = choice.model === ownId && mine !== undefined;
  const named = isMine
    ? { id: ownId, name: mine.name, shape: mine.shape }
    : namedShapes.find(({ id }) => id === choice.model);
  const wanted = loaded.find(({ id }) => loadedId(id) === choice.model);
  const own = wanted ?? (named ? undefined : loaded[0]);
  const other = named ?? namedShapes.find(({ id }) => id === anyModel)!;
  const isHere = own?.isHere || machine !== null;
  const tableDevice = devices.find(({ id }) => id === choice.device);
  const device = tableDevice ?? (isHere ? undefined : devices.find(({ id }) => id === anyDevice)!);
  const isCounted = isMine && mine.parameters !== undefined;
  const made = own
    ? loadedModel(own, choice)
    : isCounted
      ? countedModel(mine, choice)
      : namedModel(other, choice);
  const { storedBytes } = made.model.cost;
  const context = choice.context ?? own?.contextSize ?? namedContext;
  const { users = usualUsers, price = usualPrice, acceptance = usualAcceptance } = choice;
  const draft = draftOf(choice.draft, made.model.bits.kv, made.weights || halfBits);
  const speculation = {
    acceptance,
    draft: draft.cost,
    ...(choice.draftTokens && { draftTokens: choice.draftTokens }),
  };
  const where = device ?? here(own, made.isStored, storedBytes, machine);
  // Stored results are of the file as it is, on this machine.
  const isMeasured = made.isStored && !device && made.model.bits.kv === own?.report.model.bits.kv;
  const report = limitsReport(made.model, where, {
    context,
    speculation,
    serving: servingOf(choice, users, price),
    servedLoads: isMeasured ? own.report.serving?.measured : [],
  });
  return {
    model: own ? loadedId(own.id) : other.id,
    device: device?.id ?? thisMachine,
    shape: own?.report.model.shape ?? other.shape,
    weights: made.weights,
    storedBits: own?.report.model.bits.weights,
    kv: made.model.bits.kv,
    kvHeads: made.model.shape.kvHeads,
    context,
    draft: draft.id,
    askedDraftTokens: choice.draftTokens ?? 0,
    users,
    price,
    report: { ...report, speculation: report.speculation!, serving: report.serving! },
  };
}

/** A draft of the same widths as the model, or a share of the model's time. */
function draftOf(
  id: string | undefined,
  kv: number,
  weights: number,
): { id: string; cost: ModelCost | number } {
  const named = namedShapes.find((one) => one.id === id);
  if (named) return { id: named.id, cost: shapeCost(named.shape, { weights, kv }) };
  const share = Number(id ?? freeDraft);
  return share >= 0 && share <= 1 ? { id: String(share), cost: share } : { id: freeDraft, cost: 0 };
}

function servingOf(choice: LimitsChoice, users: number, pricePerHour: number): ServingOptions {
  const { prompt, answer, firstTokenMs, rate } = choice;
  return {
    users,
    sla: {
      firstTokenMs: firstTokenMs ?? usualSla.firstTokenMs,
      tokensPerSecond: rate ?? usualSla.tokensPerSecond,
    },
    promptTokens: prompt ?? usualRequest.promptTokens,
    answerTokens: answer ?? usualRequest.answerTokens,
    batch: batchRequests,
    pricePerHour,
  };
}

/** The size of an offline batch on the page. */
const batchRequests = 1000;

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

interface DerivedModel {
  model: LimitsModel;
  /** 0: as stored. */
  weights: number;
  isStored: boolean;
}

function loadedModel({ report }: LoadedModel, choice: LimitsChoice): DerivedModel {
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

function namedModel({ name, shape }: NamedShape, choice: LimitsChoice): DerivedModel {
  // "As stored" is only for files.
  const weights = choice.weights || namedBits;
  const model = shapeModel(name, shape, weights, choice.kv ?? halfBits, choice.kvHeads);
  return { model, weights, isStored: false };
}

/** The cost was counted from its graph, so it is not known for another number of heads. */
function countedModel(mine: LimitsModel, choice: LimitsChoice): DerivedModel {
  const { weights: asked, kv = halfBits } = choice;
  const weights = asked || namedBits;
  const model = {
    ...mine,
    bits: { weights, kv },
    weightsText: bitsText(weights),
    kvText: bitsText(kv),
    cost: withKvBits(withWeightBits(mine.cost, halfBits, weights), halfBits, kv),
    state: withKvTimes(mine.state, kv / halfBits),
  };
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

/** The stored choices, without unknown fields. */
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
  for (const name of ["model", "device", "draft"]) {
    if (typeof fields[name] === "string") choice[name] = fields[name];
  }
  const own = checkedOwn(fields.own);
  if (own) choice.own = own;
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
  for (const [name, most, isWhole] of otherNumbers) {
    const value = fields[name];
    if (inRange(value, most) && (!isWhole || Number.isInteger(value))) choice[name] = value;
  }
  return choice as LimitsChoice;
}

const otherNumbers: readonly [name: keyof LimitsChoice, most: number, isWhole: boolean][] = [
  ["acceptance", 1, false],
  ["draftTokens", 1024, true],
  ["users", 1 << 20, true],
  ["firstTokenMs", 1e6, false],
  ["rate", 1e4, false],
  ["prompt", 1 << 20, true],
  ["answer", 1 << 20, true],
  ["price", 1e6, false],
];
