// Stores measurements of models on this machine, by a key that names all properties that a time depends on: a small file of JSON in the
// cache folder.

import type { SmallFiles } from "../platform/platform.ts";

const MOST_ENTRIES = 50;

export class Remembered<Entry> {
  readonly #files: SmallFiles;
  readonly #name: string;
  readonly #isEntry: (entry: unknown) => boolean;

  constructor(files: SmallFiles, name: string, isEntry: (entry: unknown) => boolean) {
    this.#files = files;
    this.#name = name;
    this.#isEntry = isEntry;
  }

  async find(key: string): Promise<Entry | undefined> {
    return (await this.#read()).get(key);
  }

  /** If nothing can be stored, the next load measures again. */
  async store(key: string, entry: Entry): Promise<void> {
    const others = [...(await this.#read())].filter(([other]) => other !== key);
    const entries = [...others, [key, entry] as const].slice(-MOST_ENTRIES);
    const text = `${JSON.stringify(Object.fromEntries(entries))}\n`;
    await this.#files.write(this.#name, text).catch(() => {});
  }

  async #read(): Promise<Map<string, Entry>> {
    try {
      const found = JSON.parse((await this.#files.read(this.#name)) ?? "{}") as object;
      return new Map(Object.entries(found).filter(([, entry]) => this.#isEntry(entry)));
    } catch {
      return new Map(); // it cannot be read: measured again, and replaced
    }
  }
}
