// The holder of a database: a small file beside it ("sessions.db-holder") names the server that has it open, so that another server can
// name it. It is only read if the database is locked: the lock ends with its process, so the file of a killed one blocks no other.

import * as fs from "node:fs";
import { whereWeAre } from "./node-part-names.ts";
import { privateFileMode } from "./node-private.ts";
import { isRunning } from "./node-process.ts";

interface Holder {
  readonly process: number;
  /** The machine or container of the process id. */
  readonly where: string;
  readonly address: string;
}

const fileOf = (database: string): string => `${database}-holder`;

/** Call with the lock held. If it cannot be written, others only lack the name. */
export function noteHolder(database: string, address: string): void {
  const holder: Holder = { process: process.pid, where: whereWeAre(), address };
  try {
    fs.rmSync(fileOf(database), { force: true }); // never into the target of a link
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

/** The holder of a locked database, and advice, as the end of a sentence. */
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
