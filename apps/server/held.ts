// A service over a database: opened with the server, and again while it cannot be opened or written, because a full disk gets room
// again, a folder its rights, and a damaged file is replaced. Conversations and batches are such services.

import { Backoff, type Poll, poll } from "../../src/base/backoff.ts";
import { messageOf } from "../../src/base/errors.ts";
import { type Database, StorageError } from "../../src/platform/database.ts";
import type { ServerContext } from "./context.ts";

interface OpenOptions {
  /** Opens it read-only, and the reason why. */
  readOnly?: boolean;
  why?: StorageError;
  /** How long to wait for another process that has it open. */
  busyMs?: number;
  /** The address of this process: another one that finds the file in use can show it. */
  address?: string;
}

/** Opens a database file. */
export type OpenDatabase = (options?: OpenOptions) => Database;

interface Service {
  close(): Promise<void>;
}

export interface HeldOptions<S> {
  /** The content of the database, for the log: "conversations". */
  readonly what: string;
  readonly open: OpenDatabase;
  /** Makes the service; if it throws, the database is closed. */
  make(database: Database): S;
}

/** Opening a file may read all of it. */
const waits = { firstMs: 1000, mostMs: 30_000, tries: Number.POSITIVE_INFINITY };

export class Held<S extends Service> {
  readonly #server: ServerContext;
  readonly #options: HeldOptions<S>;
  readonly #backoff = new Backoff(waits);
  /** All services that were opened: a request may still use an earlier one. */
  readonly #opened: S[] = [];
  #isWritable = false;
  #problem: StorageError | undefined;
  #triesAt = 0;
  /** Looks whether the process that has the file open has ended. */
  #looking: Poll | undefined;
  #isClosed = false;

  constructor(server: ServerContext, options: HeldOptions<S>) {
    this.#server = server;
    this.#options = options;
  }

  /** Errors are logged, and returned to requests. A file that is in use is opened as soon as it is free, also without requests. */
  start(): void {
    this.#tryOrFail();
    if (this.#problem?.problem !== "busy") return;
    const look = async (): Promise<void> => {
      if (!this.#isWritable) this.#tryOrFail();
      if (this.#problem?.problem === "busy") throw this.#problem;
      this.#looking?.stop();
    };
    this.#looking = poll(look, { everyMs: waits.firstMs, mostMs: waits.mostMs });
  }

  /** The service, which may be one that only reads. Throws a StorageError if there is none. */
  now(): S {
    if (!this.#isWritable && !this.#isClosed && this.#server.now() >= this.#triesAt) {
      this.#tryOrFail();
    }
    const service = this.#opened.at(-1);
    if (service) return service;
    throw this.#problem!;
  }

  /** The service, which is opened at once if it could not be used before. */
  again(): S {
    this.#triesAt = 0;
    return this.now();
  }

  /** The reason why nothing can be saved. */
  get problem(): StorageError | undefined {
    return this.#problem;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#looking?.stop();
    for (const service of this.#opened.toReversed()) await service.close();
  }

  #tryOrFail(): void {
    try {
      this.#try();
    } catch (problem) {
      this.#failed(problem);
    }
  }

  #try(): void {
    const database = this.#options.open();
    const isFirst = this.#opened.length === 0;
    if (!database.writable && !isFirst) {
      database.close();
      throw database.problem ?? this.#problem;
    }
    const service = this.#made(database);
    this.#opened.push(service);
    if (!database.writable) throw database.problem;
    if (this.#problem)
      this.#server.log(`${this.#options.what}: "${database.place}" can be written again`);
    this.#isWritable = true;
    this.#problem = undefined;
  }

  /** If the disk is too full for the first writes, the database is opened read-only. */
  #made(database: Database): S {
    const { make, open } = this.#options;
    try {
      return make(database);
    } catch (problem) {
      database.close();
      const isFull = problem instanceof StorageError && problem.problem === "full";
      if (!isFull || !database.writable || this.#opened.length > 0) throw problem;
      const reading = open({ readOnly: true, why: problem });
      try {
        this.#opened.push(make(reading));
      } catch {
        reading.close();
      }
      throw problem;
    }
  }

  #failed(problem: unknown): void {
    if (!(problem instanceof StorageError)) throw problem;
    if (problem.message !== this.#problem?.message) {
      const after =
        problem.problem === "busy" ? ". This server goes on with it when it is free" : "";
      this.#server.log(`${this.#options.what} are not saved: ${messageOf(problem)}${after}`);
    }
    this.#problem = problem;
    this.#triesAt = this.#server.now() + (this.#backoff.next() ?? 0);
  }
}
