// The number of saves of a database, in a small file beside it ("sessions.db-saves"): the database counts its transactions, too, so
// that a log that was deleted, cut off or damaged, or a file that was emptied or exchanged, is noticed. Written after each
// transaction and without fsync: after a power cut its number may be too small, never too large.

import * as fs from "node:fs";
import { crc32 } from "node:zlib";
import { privateFileMode } from "./node-private.ts";

export interface Saves {
  /** The id of the database file: a copy has the same one. */
  readonly id: string;
  readonly count: number;
  /** The salts of the log that the last transaction is in; "": there is no log, all is in the file. */
  readonly salts: string;
  /** The end of that transaction in the log. */
  readonly end: number;
}

const recordBytes = 128;

export const savesFile = (database: string): string => `${database}-saves`;

/** undefined: there are none, or they cannot be read. */
export function readSaves(database: string): Saves | undefined {
  try {
    const [text = "", sum] = fs.readFileSync(savesFile(database), "utf8").trimEnd().split("\t");
    if (sum !== sumOf(text)) return undefined;
    const [id, count, salts, end] = text.split(" ");
    return { id: id!, count: Number(count), salts: salts!, end: Number(end) };
  } catch {
    return undefined;
  }
}

const sumOf = (text: string): string => crc32(new TextEncoder().encode(text)).toString(16);

/** Writes them as one record in place, which needs no room on a full disk. */
export class SavesWriter {
  readonly #file: string;
  #descriptor: number | undefined;

  constructor(database: string) {
    this.#file = savesFile(database);
  }

  /** The transaction is saved already: if this fails, the next one says it all. */
  write({ id, count, salts, end }: Saves): void {
    const text = `${id} ${count} ${salts} ${end}`;
    const record = Buffer.from(`${text}\t${sumOf(text)}\n`.padEnd(recordBytes));
    try {
      this.#descriptor ??= fs.openSync(
        this.#file,
        fs.constants.O_CREAT | fs.constants.O_WRONLY,
        privateFileMode,
      );
      fs.writeSync(this.#descriptor, record, 0, recordBytes, 0);
    } catch {
      this.close();
    }
  }

  close(): void {
    if (this.#descriptor !== undefined) fs.closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }
}
