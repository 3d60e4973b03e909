// The measurements of tuning as a readable text file: a header with the machine and the engine, the profiles, then
// groups of stage times. docs/inside/tune-file.md describes it. This file parses and prints text; it does no I/O.
//
//   lantern-tune 2
//   engine 0.1.0 kernels 5e1f0c2a
//   cpu Intel(R) Xeon(R) Processor
//   cores 2
//   features wasm relaxed dot4=unsigned
//   date 2026-11-15T05:10:00.000Z
//   notify 9.8 6.1 31.0
//   profile 0 backend=cpu level=3 variant=8x4.compact idle=spin
//   group q4_0 4096 2048 threads=2 noise=0.021
//   1  12.1 340.9  - -
//   transfer 1  4.1 - 29.0
//   end 9c1d02f4
// The last line has a hash of all others (seal.ts). A group is one type and shape of weights (rows, columns) at one number of threads; with experts=8/128 it is the matmul
// of tokens that use 8 of 128 experts each. Each of its lines is a number of tokens, then for each profile the
// microseconds of init (preparing activations) and compute, or "- -" if the profile cannot compute it, was given up, or
// seemed faster than the default and could not be confirmed. On a GPU, "transfer" lines follow: a number of tokens, then
// the times to send their activations as floats, to send them prepared ("-": kernels prepare them as they read), and
// to wait for the results and bring them back. A GPU's file may end with the times of layers in one dispatch (layer-lines.ts).

import { FormatError } from "../base/errors.ts";
import type { NotifyCost } from "../machine/notify.ts";
import {
  dispatchForm,
  dispatchName,
  layersText,
  parseDispatch,
  parseLayers,
  type TunedDispatch,
  type TunedLayers,
} from "./layer-lines.ts";
import { brokenSeal, sealed } from "./seal.ts";

const TUNE_VERSION = 2;

/** The machine and the engine that times are for: they mean nothing on others. */
export interface TuneIdentity {
  readonly engine: string;
  readonly cpu: string;
  readonly cores: number;
  readonly features: string;
}

/** The way a matmul runs. */
export interface TuneProfile {
  readonly backend: string;
  readonly level: number;
  /** An id of kernels/matmul-variants.ts; "rows": opt level 2. */
  readonly variant: string;
  /** Behaviour of an idle thread: spin for a while, or sleep immediately. */
  readonly idle: "spin" | "sleep";
}

/** The first profile of a GPU's file: the backend's choice without times. */
export const DEFAULT_VARIANT = "default";

/** Matrices of which each token uses some. */
export interface Experts {
  readonly count: number;
  readonly used: number;
}

/** A matmul that is measured: a matrix of n rows and k columns, or experts of that shape. */
export interface TuneProblem {
  readonly dtype: string;
  readonly n: number;
  readonly k: number;
  readonly experts?: Experts;
}

/** "q4_0 4096 x 2048", "q4_0 768 x 2048, 8 of 128 experts". */
export function problemText({ dtype, n, k, experts }: TuneProblem): string {
  const of = experts ? `, ${experts.used} of ${experts.count} experts` : "";
  return `${dtype} ${n} x ${k}${of}`;
}

export function isSameProblem(a: TuneProblem, b: TuneProblem): boolean {
  return problemText(a) === problemText(b);
}

/** Microseconds. */
export interface StageTimes {
  readonly init: number;
  readonly compute: number;
}

export interface TuneLine {
  readonly m: number;
  /** One entry per profile; undefined or missing if it was not measured. */
  readonly times: readonly (StageTimes | undefined)[];
}

/** Microseconds between the host and a GPU, for the activations and results of m tokens. */
export interface TransferLine {
  readonly m: number;
  /** Activations as floats. */
  readonly there: number;
  /** Activations as the kernels read them; undefined: the kernels prepare them as they read. */
  readonly prepared: number | undefined;
  /** Waiting for the GPU, and the results. */
  readonly back: number;
}

export interface TuneGroup extends TuneProblem {
  readonly threads: number;
  /** The difference of the default's times when it was measured twice, as a fraction; absent: not measured. */
  readonly noise?: number;
  /** Ascending by m. */
  readonly lines: readonly TuneLine[];
  /** On a GPU, ascending by m; absent: not measured. */
  readonly transfers?: readonly TransferLine[];
}

export interface TuneFile extends TuneIdentity {
  readonly date: string;
  /** The time to wake a thread; absent: not measured. */
  readonly notify?: NotifyCost;
  readonly profiles: readonly TuneProfile[];
  readonly groups: readonly TuneGroup[];
  /** Layers in one dispatch, on a GPU; absent: not measured. */
  readonly layers?: readonly TunedLayers[];
  /** Times of the stored file that are not used, and why (roofline.ts); absent: none. Not stored. */
  readonly refused?: readonly string[];
}

export function profileText({ backend, level, variant, idle }: TuneProfile): string {
  return `${backend} opt level ${level} ${variant}${idle === "sleep" ? ", sleeping" : ""}`;
}

export function printTuneFile(file: TuneFile): string {
  const lines = [
    `lantern-tune ${TUNE_VERSION}`,
    `engine ${file.engine}`,
    `cpu ${file.cpu}`,
    `cores ${file.cores}`,
    `features ${file.features}`,
    `date ${file.date}`,
    ...(file.notify ? [notifyLine(file.notify)] : []),
    "# Microseconds of init and compute for each profile; - - where it was not measured. See docs/inside/tune-file.md.",
    ...file.profiles.map(
      ({ backend, level, variant, idle }, index) =>
        `profile ${index} backend=${backend} level=${level} variant=${variant} idle=${idle}`,
    ),
    ...file.groups.flatMap((group) => [
      groupText(group),
      ...group.lines.map((line) => lineText(line, file.profiles.length)),
      ...(group.transfers ?? []).map(transferText),
    ]),
    ...(file.layers ?? []).flatMap(layersText),
  ];
  return sealed(`${lines.join("\n")}\n`);
}

function notifyLine({ us, low, high }: NotifyCost): string {
  return `notify ${[us, low, high].map((time) => time.toFixed(1)).join(" ")}`;
}

function groupText({ dtype, n, k, experts, threads, noise }: TuneGroup): string {
  const of = experts ? ` experts=${experts.used}/${experts.count}` : "";
  const measured = noise === undefined ? "" : ` noise=${noise.toFixed(3)}`;
  return `group ${dtype} ${n} ${k} threads=${threads}${of}${measured}`;
}

function transferText({ m, there, prepared, back }: TransferLine): string {
  const times = [there, prepared, back].map((us) => us?.toFixed(1) ?? "-");
  return `transfer ${[m, ...times].join("  ")}`;
}

/** Profiles that were added after the line was measured have no times in it. */
function lineText({ m, times }: TuneLine, profiles: number): string {
  const pairs = Array.from({ length: profiles }, (_, profile) => {
    const time = times[profile];
    return time ? `${time.init.toFixed(1)} ${time.compute.toFixed(1)}` : "- -";
  });
  return [String(m).padStart(4), ...pairs].join("  ");
}

/** `name` says where the text comes from, for messages. */
export function parseTuneFile(text: string, name: string): TuneFile {
  return new TuneParser(text, name).parse();
}

interface OpenGroup extends Omit<TuneGroup, "lines"> {
  lines: TuneLine[];
  transfers?: TransferLine[];
}

interface OpenLayers extends Omit<TunedLayers, "dispatches"> {
  dispatches: TunedDispatch[];
}

const GROUP =
  /^group (\S+) (\d+) (\d+) threads=(\d+)(?: experts=(\d+)\/(\d+))?(?: noise=(\d+(?:\.\d+)?))?$/;

class TuneParser {
  readonly #text: string;
  readonly #lines: string[];
  readonly #name: string;
  readonly #profiles: TuneProfile[] = [];
  readonly #groups: OpenGroup[] = [];
  readonly #layers: OpenLayers[] = [];
  #notify: NotifyCost | undefined;
  #at = 0;

  constructor(text: string, name: string) {
    this.#text = text;
    this.#lines = text.split("\n");
    this.#name = name;
  }

  parse(): TuneFile {
    const version = this.#header("lantern-tune");
    if (version !== String(TUNE_VERSION)) {
      throw this.#wrong(`a tune file of version "${version}"`, `version ${TUNE_VERSION}`);
    }
    const broken = brokenSeal(this.#text);
    if (broken) throw this.#refused(broken.got, broken.expected, "end");
    const engine = this.#header("engine");
    const cpu = this.#header("cpu");
    const cores = this.#count(this.#header("cores"));
    const features = this.#header("features");
    const date = this.#header("date");
    for (; this.#at < this.#lines.length; this.#at++) {
      const line = this.#lines[this.#at]!.trim();
      if (line === "" || line.startsWith("#") || line.startsWith("end ")) continue;
      if (line.startsWith("profile ")) this.#profile(line);
      else if (line.startsWith("group ")) this.#group(line);
      else if (line.startsWith("notify ")) this.#notify = this.#cost(line);
      else if (line.startsWith("transfer ")) this.#transfer(line);
      else if (line.startsWith("layers ")) this.#layer(line);
      else if (line.startsWith("dispatch ")) this.#dispatch(line);
      else this.#times(line);
    }
    return {
      ...{ engine, cpu, cores, features, date },
      ...(this.#notify && { notify: this.#notify }),
      profiles: this.#profiles,
      groups: this.#groups,
      ...(this.#layers.length > 0 && { layers: this.#layers }),
    };
  }

  #header(key: string): string {
    const line = this.#lines[this.#at] ?? "";
    if (!line.startsWith(`${key} `)) throw this.#wrong(`"${shorten(line)}"`, `"${key} ..."`);
    this.#at++;
    return line.slice(key.length + 1).trim();
  }

  #profile(line: string): void {
    const [, index, ...fields] = line.split(/\s+/);
    const facts = new Map(fields.map((field) => field.split("=", 2) as [string, string]));
    const [backend, level, variant, idle] = ["backend", "level", "variant", "idle"].map((key) =>
      facts.get(key),
    );
    const isWhole = backend && variant && (idle === "spin" || idle === "sleep");
    if (!isWhole || index !== String(this.#profiles.length)) {
      throw this.#wrong(`"${shorten(line)}"`, `profile ${this.#profiles.length} with its fields`);
    }
    this.#profiles.push({ backend, level: this.#count(level ?? ""), variant, idle });
  }

  #cost(line: string): NotifyCost {
    const [us, low, high] = line.split(/\s+/).slice(1).map(Number);
    const isWhole = line.split(/\s+/).length === 4 && [us, low, high].every(isTime);
    if (!isWhole)
      throw this.#wrong(`"${shorten(line)}"`, '"notify MEDIAN LOW HIGH" in microseconds');
    return { us: us!, low: low!, high: high! };
  }

  #group(line: string): void {
    const match = GROUP.exec(line);
    if (!match)
      throw this.#wrong(
        `"${shorten(line)}"`,
        '"group TYPE N K threads=T", then experts=USED/COUNT and noise=X if there are any',
      );
    const [n, k, threads] = match.slice(2, 5).map((text) => this.#count(text)) as [
      number,
      number,
      number,
    ];
    const noise = match[7] === undefined ? {} : { noise: Number(match[7]) };
    const of = match[5] === undefined ? {} : { experts: this.#experts(match[5], match[6]!) };
    this.#groups.push({ dtype: match[1]!, n, k, ...of, threads, ...noise, lines: [] });
  }

  #experts(usedText: string, countText: string): Experts {
    const [used, count] = [this.#count(usedText), this.#count(countText)];
    if (used <= count) return { count, used };
    throw this.#wrong(`experts=${used}/${count}`, "at most as many used as there are");
  }

  #transfer(line: string): void {
    const [, m, ...fields] = line.split(/\s+/);
    const group = this.#groups.at(-1);
    if (!group) throw this.#wrong(`"${shorten(line)}"`, "a group before its transfers");
    const [there, prepared, back] = fields.map((text) => (text === "-" ? undefined : Number(text)));
    const isWhole = fields.length === 3 && isTime(there) && isTime(back);
    if (!isWhole || !(prepared === undefined || isTime(prepared))) {
      throw this.#wrong(
        `"${shorten(line)}"`,
        '"transfer M THERE PREPARED BACK" in microseconds, PREPARED may be -',
      );
    }
    group.transfers ??= [];
    const tokens = this.#count(m!);
    if (tokens <= (group.transfers.at(-1)?.m ?? 0))
      throw this.#wrong(`M = ${m}`, "ascending numbers");
    group.transfers.push({ m: tokens, there: there!, prepared, back: back! });
  }

  #layer(line: string): void {
    const layers = parseLayers(line);
    if (!layers) {
      throw this.#wrong(
        `"${shorten(line)}"`,
        '"layers SHAPE use=DISPATCH bytes=B contexts=C,C revision=R", then noise=X if it is known',
      );
    }
    if (this.#layers.some(({ shape }) => shape === layers.shape)) {
      throw this.#wrong(`layers ${layers.shape} twice`, "each shape once");
    }
    this.#layers.push({ ...layers, dispatches: [] });
  }

  #dispatch(line: string): void {
    const layers = this.#layers.at(-1);
    if (!layers) throw this.#wrong(`"${shorten(line)}"`, "layers before their dispatches");
    const dispatch = parseDispatch(line);
    if (!dispatch) throw this.#wrong(`"${shorten(line)}"`, dispatchForm);
    const name = dispatchName(dispatch);
    if (layers.dispatches.some((one) => dispatchName(one) === name)) {
      throw this.#wrong(`dispatch ${name} twice`, "each dispatch once");
    }
    layers.dispatches.push(dispatch);
  }

  #times(line: string): void {
    const fields = line.split(/\s+/);
    const group = this.#groups.at(-1);
    if (!group) throw this.#wrong(`"${shorten(line)}"`, "a group before its times");
    if (fields.length !== 1 + 2 * this.#profiles.length) {
      throw this.#wrong(
        `${fields.length - 1} times`,
        `2 for each of ${this.#profiles.length} profiles`,
      );
    }
    const m = this.#count(fields[0]!);
    if (m <= (group.lines.at(-1)?.m ?? 0)) throw this.#wrong(`M = ${m}`, "ascending numbers");
    const times = this.#profiles.map((_, p) => this.#pair(fields[1 + 2 * p]!, fields[2 + 2 * p]!));
    group.lines.push({ m, times });
  }

  #pair(init: string, compute: string): StageTimes | undefined {
    if (init === "-" && compute === "-") return undefined;
    const pair = { init: Number(init), compute: Number(compute) };
    if (isTime(pair.init) && isTime(pair.compute) && init !== "" && compute !== "") return pair;
    throw this.#wrong(`times "${init} ${compute}"`, "microseconds or - -");
  }

  #count(text: string): number {
    const count = Number(text);
    if (/^\d+$/.test(text) && count >= 1 && count <= 2 ** 31) return count;
    throw this.#wrong(`"${shorten(text)}"`, "a whole number from 1");
  }

  #wrong(got: string, expected: string): FormatError {
    return this.#refused(got, expected, `line ${this.#at + 1}`);
  }

  #refused(got: string, expected: string, field: string): FormatError {
    return new FormatError("tune", {
      file: this.#name,
      field,
      got,
      expected: `${expected} (lantern tune makes a new file)`,
    });
  }
}

function isTime(us: number | undefined): boolean {
  return us !== undefined && Number.isFinite(us) && us >= 0;
}

function shorten(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}
