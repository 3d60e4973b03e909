// How models were loaded last, as chosen in the web app: one small file in the server's data folder, by the model's file or folder.
// What a command line says of a start counts more; the app's next load counts again.

import { messageOf } from "../base/errors.ts";
import type { DownloadPlatform } from "../platform/download.ts";
import type { LoadChange, LoadChoices } from "../server/serve.ts";
import type { ModelFlags } from "./flags.ts";

export class ChosenOptions {
  readonly #platform: DownloadPlatform;
  /** undefined: they last until the server ends. */
  readonly #file: string | undefined;
  readonly #all: Map<string, LoadChoices>;

  private constructor(
    platform: DownloadPlatform,
    file: string | undefined,
    all: Map<string, LoadChoices>,
  ) {
    this.#platform = platform;
    this.#file = file;
    this.#all = all;
  }

  static none(platform: DownloadPlatform): ChosenOptions {
    return new ChosenOptions(platform, undefined, new Map());
  }

  /** A file that cannot be read is said to be so, and replaced with the next choice. */
  static async read(
    platform: DownloadPlatform,
    file: string,
    warn: (line: string) => void,
  ): Promise<ChosenOptions> {
    try {
      const text = await platform.readText(file);
      const found: unknown = text === undefined ? {} : JSON.parse(text);
      const all = new Map<string, LoadChoices>();
      for (const [path, choices] of Object.entries(found as object))
        all.set(path, checked(choices));
      return new ChosenOptions(platform, file, all);
    } catch (error) {
      warn(
        `${file}: ${messageOf(error)}. Models are loaded as if nothing had been chosen for them`,
      );
      return new ChosenOptions(platform, file, new Map());
    }
  }

  of(path: string): LoadChoices {
    return this.#all.get(path) ?? {};
  }

  /** What they are after a change. */
  with(path: string, change: LoadChange): LoadChoices {
    return checked({ ...this.of(path), ...change });
  }

  async keep(path: string, choices: LoadChoices): Promise<void> {
    if (JSON.stringify(choices) === JSON.stringify(this.of(path))) return;
    if (Object.keys(choices).length === 0) this.#all.delete(path);
    else this.#all.set(path, choices);
    if (this.#file === undefined) return;
    const part = `${this.#file}.${this.#platform.processId}.part`;
    const bytes = new TextEncoder().encode(
      `${JSON.stringify(Object.fromEntries(this.#all), null, 2)}\n`,
    );
    await this.#platform.makeFolder(this.#platform.join(this.#file, ".."), { closed: true });
    const file = await this.#platform.openAppend(part, 0);
    await file.append(bytes);
    await file.close();
    await this.#platform.rename(part, this.#file);
  }
}

/** Flags with what was chosen in the app instead. */
export function withChosen(flags: ModelFlags, choices: LoadChoices): ModelFlags {
  const { contextSize, threads, gpuLayers, gpuFor, kvType, weights, chatTemplate } = choices;
  const { gpuLayers: _, gpuFor: _f, ...rest } = flags;
  const kv = typeof kvType === "string" ? { k: kvType, v: kvType } : kvType;
  return {
    ...(gpuLayers === undefined && gpuFor === undefined ? flags : rest),
    ...(contextSize !== undefined && { ctxSize: contextSize }),
    ...(threads !== undefined && { threads }),
    ...(weights !== undefined && { weights }),
    ...(chatTemplate !== undefined && { template: chatTemplate }),
    ...(gpuLayers !== undefined && { gpuLayers }),
    ...(gpuFor !== undefined && { gpuFor }),
    ...(kv && { cacheTypeK: kv.k, cacheTypeV: kv.v }),
  };
}

/** Flags, and what was chosen in the app where they say nothing. */
export function orChosen(flags: ModelFlags, choices: LoadChoices): ModelFlags {
  const isGpuGiven = flags.gpuLayers !== undefined || flags.gpuFor !== undefined;
  const { gpuLayers, gpuFor, ...rest } = choices;
  const given = Object.entries(flags).filter(([, value]) => value !== undefined);
  const isKvGiven = given.some(([name]) => name.startsWith("cacheType"));
  const { kvType, ...others } = rest;
  const used = {
    ...others,
    ...(!isKvGiven && kvType && { kvType }),
    ...(!isGpuGiven && { gpuLayers, gpuFor }),
  };
  return { ...withChosen({}, used), ...Object.fromEntries(given) };
}

const names = [
  ...(["contextSize", "threads", "gpuLayers", "gpuFor", "kvType", "weights"] as const),
  "chatTemplate" as const,
];

function checked(choices: object): LoadChoices {
  const known = Object.entries(choices).filter(
    ([name, value]) =>
      (names as readonly string[]).includes(name) && value !== null && value !== undefined,
  );
  return Object.fromEntries(known);
}
