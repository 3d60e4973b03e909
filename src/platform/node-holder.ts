// Which server has a database open: a small file beside it ("sessions.db-holder"), so that another one can say whom it found there. It is
// only read where the file is locked: the lock ends with its process, so what a killed one leaves stops nobody.

import * as fs from "node:fs";
import { whereWeAre } from "./node-part-names.ts";
import { privateFileMode } from "./node-private.ts";
import { isRunning } from "./node-process.ts";

interface Holder {
  readonly process: number;
  /** The machine or container that the process id is of. */
  readonly where: string;
  readonly address: string;
}

const fileOf = (database: string): string => `${database}-holder`;

/** Call with the lock held. What cannot be written is not known to others, and nothing else. */
export function noteHolder(database: string, address: string): void {
  const holder: Holder = { process: process.pid, where: whereWeAre(), address };
  try {
    fs.rmSync(fileOf(database), { force: true }); // never into what a link leads to
    const options = { flag: "wx", mode: privateFileMode };
    fs.writeFileSync(fileOf(database), JSON.stringify(holder), options);
  } catch {
    // a full disk
  }
}

/** Call before the lock is given up. */
export function forgetHolder(database: string): void {
  try {
    fs.rmSync(fileOf(database), { force: true });
  } catch {
    // it is replaced by the next one
  }
}

/** Who has a locked database open, and what to do about it, as the end of a sentence. */
export function heldBy(database: string): string {
  const holder = readHolder(database);
  if (!holder) return "another process. Stop it";
  if (holder.where !== whereWeAre()) {
    return "a server on another machine or in another container. Stop that one";
  }
  return `the server at ${holder.address} (process ${holder.process}). Open that address, or stop that server`;
}

/** undefined: another program has it, or an older Lantern. */
function readHolder(database: string): Holder | undefined {
  try {
    const found = JSON.parse(fs.readFileSync(fileOf(database), "utf8")) as Partial<Holder>;
    const { process: id, where, address } = found;
    const isWhole =
      Number.isSafeInteger(id) &&
      typeof where === "string" &&
      typeof address === "string" &&
      /^http:\/\/[\w.:[\]-]{1,300}$/.test(address);
    if (!isWhole) return undefined;
    return where !== whereWeAre() || isRunning(id!) ? (found as Holder) : undefined;
  } catch {
    return undefined;
  }
}
