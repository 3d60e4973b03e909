// The files of batches in reach of all gateways: written to NATS and to this gateway's own folder at once, and read from the folder; a file
// that another gateway wrote is fetched when it is first read.

import { SourceError } from "../../src/base/errors.ts";
import { type FileFolder, type NewFile, piecesOf } from "../batch/file-folder.ts";
import type { FileBucket } from "./buckets.ts";

export class SharedFolder implements FileFolder {
  readonly #own: FileFolder;
  readonly #bucket: () => Promise<FileBucket>;
  /** Ids of files that are in the own folder; undefined: not looked at yet. */
  #here: Promise<Set<string>> | undefined;
  readonly #fetching = new Map<string, Promise<void>>();

  constructor(own: FileFolder, bucket: () => Promise<FileBucket>) {
    this.#own = own;
    this.#bucket = bucket;
  }

  get place(): string {
    return this.#own.place;
  }

  async create(id: string): Promise<NewFile> {
    const there = (await this.#bucket()).create(id);
    const here = await this.#own.create(id);
    const known = await this.#known();
    return {
      async write(bytes) {
        await Promise.all([here.write(bytes), there.write(bytes)]);
      },
      // NATS first: all files that this gateway knows can be read by others.
      async finish() {
        await there.finish();
        await here.finish();
        known.add(id);
      },
      async discard() {
        await Promise.allSettled([here.discard(), there.discard()]);
      },
    };
  }

  async read(id: string, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const known = await this.#known();
    if (!known.has(id)) {
      const fetching = this.#fetching.get(id) ?? this.#fetch(id, known);
      this.#fetching.set(id, fetching);
      await fetching.finally(() => this.#fetching.delete(id));
    }
    return await this.#own.read(id, start, end);
  }

  async remove(id: string): Promise<void> {
    await this.forget(id);
    await (await this.#bucket()).remove(id);
  }

  /** Removes the local copy only: another gateway removed the file in NATS. */
  async forget(id: string): Promise<void> {
    (await this.#known()).delete(id);
    await this.#own.remove(id);
  }

  /** NATS has lost its files: the local ones are written there again. Returns their number. */
  async restore(files: Iterable<{ readonly id: string; readonly bytes: number }>): Promise<number> {
    const bucket = await this.#bucket();
    await bucket.make();
    const known = await this.#known();
    let count = 0;
    for (const file of files) {
      if (!known.has(file.id) || (await bucket.has(file.id))) continue;
      const there = bucket.create(file.id);
      try {
        for await (const piece of piecesOf(this.#own, file)) await there.write(piece);
        await there.finish();
      } catch (error) {
        await there.discard().catch(() => {});
        throw error;
      }
      count++;
    }
    return count;
  }

  list(): Promise<readonly string[]> {
    return this.#own.list();
  }

  #known(): Promise<Set<string>> {
    this.#here ??= this.#own.list().then((ids) => new Set(ids));
    return this.#here;
  }

  async #fetch(id: string, known: Set<string>): Promise<void> {
    const bucket = await this.#bucket();
    const file = await this.#own.create(id);
    try {
      for await (const piece of bucket.read(id)) await file.write(piece);
      await file.finish();
      known.add(id);
    } catch (error) {
      await file.discard();
      throw new SourceError(`batches: file ${id} could not be fetched from the cluster`, {
        cause: error,
      });
    }
  }
}
