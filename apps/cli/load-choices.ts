// The store of load choices: how models were loaded last in the web app, in one small file in the server's data folder, by the
// model's file or folder. The command line of a start counts more; the app's next load counts again.

import { messageOf } from "../../src/base/errors.ts";
import type { DownloadPlatform } from "../../src/platform/download.ts";
import type { LoadChange, LoadChoices } from "../server/serve.ts";
import type { ModelFlags } from "./flags.ts";

export class ChosenOptions {
  readonly #platform: DownloadPlatform;
  /** undefined: choices last until the server ends. */
  readonly #file: string | undefined;
  readonly #all: Map<string, LoadChoices>;
  #writing: Promise<void> = Promise.resolve();

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

  /** A file that cannot be read is reported, and set aside. */
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
      const aside = `${file}.damaged`;
      const moved = await platform.rename(file, aside).then(
        () => `It is set aside as ${aside}`,
        (why: unknown) => `It stays, and the next choice replaces it (${messageOf(why)})`,
      );
      warn(
        `${file}: ${messageOf(error)}. Models are loaded as if nothing had been chosen for them. ${moved}`,
      );
      return new ChosenOptions(platform, file, new Map());
    }
  }

  of(path: string): LoadChoices {
    return this.#all.get(path) ?? {};
  }

  /** The choices after a change. */
  with(path: string, change: LoadChange): LoadChoices {
    return checked({ ...this.of(path), ...change });
  }

  async keep(path: string, choices: LoadChoices): Promise<void> {
    if (JSON.stringify(choices) === JSON.stringify(this.of(path))) return;
    if (Object.keys(choices).length === 0) this.#all.delete(path);
    else this.#all.set(path, choices);
    if (this.#file === undefined) return;
    this.#writing = this.#writing.catch(() => {}).then(() => this.#write(this.#file!));
    await this.#writing;
  }

  async #write(file: string): Promise<void> {
    const platform = this.#platform;
    await platform.makeFolder(platform.join(file, ".."), { closed: true });
    await platform.writeText(file, `${JSON.stringify(Object.fromEntries(this.#all), null, 2)}\n`);
  }
}

/** Flags overridden by the choices of the app. */
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

/** Flags, completed by the choices of the app. */
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
