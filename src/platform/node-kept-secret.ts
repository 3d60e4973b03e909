// The secret that a server keeps across restarts: the token of its link, from which the cookies of its pages are made, too. It lies in
// "access/token" of the data folder, a file of mode 0600 in a folder of 0700.
//
// A program that can put a file there can be let in, so the file is believed only if it is a plain file of this user that no other user
// could read or write. Any other is replaced, which is reported. No message contains the secret.

import * as fs from "node:fs";
import * as path from "node:path";
import { SourceError } from "../base/errors.ts";
import { nodeCrypto } from "./node-builtin.ts";
import { dataFolder, type Environment } from "./node-folders.ts";
import { partOf } from "./node-part-names.ts";
import { homeFolder, pathReasonOf } from "./node-path-errors.ts";
import { makeClosedFolder, makePrivateFolder, privateFileMode } from "./node-private.ts";

export interface KeptSecret {
  readonly secret: string;
  /** A warning for the user, as a sentence; undefined: the secret is the kept one. */
  readonly warning: string | undefined;
}

/** `renew`: the kept secret is replaced, and links and cookies made of it are no longer valid. */
export function keptSecret({
  renew = false,
  env = process.env,
}: {
  renew?: boolean;
  env?: Environment;
} = {}): KeptSecret {
  const own = dataFolder(env, process.platform, homeFolder());
  const folder = path.join(own, "access");
  const file = path.join(folder, "token");
  try {
    makePrivateFolder(own, env);
    makeClosedFolder(folder);
    const why = whyOpen(fs.lstatSync(folder), "folder");
    if (why) throw new SourceError(`${why}. Remove it`);
    return secretIn(file, renew);
  } catch (error) {
    const warning = `The token is not kept, so that pages that are open now need a new link after a restart: "${file}": ${pathReasonOf(error)}`;
    return { secret: newSecret(), warning };
  }
}

function secretIn(file: string, renew: boolean): KeptSecret {
  const found = read(file);
  if (found.secret !== undefined && !renew) return { secret: found.secret, warning: undefined };
  write(file, newSecret(), found.why !== undefined || renew);
  const now = read(file);
  if (now.secret === undefined) {
    fs.rmSync(file, { force: true });
    throw new SourceError(`${now.why ?? "it is gone"}. Name another data folder (LANTERN_DATA)`);
  }
  const warning =
    found.why === undefined || renew
      ? undefined
      : `The token in "${file}" is not used, because ${found.why}. There is a new one: open the new link, earlier ones are not let in`;
  return { secret: now.secret, warning };
}

/** 160 bits, in characters that need no escaping in a URL. */
const newSecret = (): string => nodeCrypto().randomBytes(20).toString("hex");

/** Neither: there is no file. */
interface Found {
  readonly secret?: string;
  /** Why it is not used. */
  readonly why?: string;
}

function read(file: string): Found {
  const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = fs.constants; // Windows lacks the last two
  let descriptor: number;
  try {
    descriptor = fs.openSync(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return {};
    return {
      why: code === "ELOOP" ? "it is a link" : `it cannot be read (${pathReasonOf(error)})`,
    };
  }
  try {
    const why = whyOpen(fs.fstatSync(descriptor), "file");
    if (why) return { why };
    const bytes = Buffer.alloc(100);
    const text = bytes.toString("latin1", 0, fs.readSync(descriptor, bytes));
    const secret = /^([\da-f]{40})\n$/.exec(text)?.[1];
    return secret === undefined ? { why: "it is damaged" } : { secret };
  } finally {
    fs.closeSync(descriptor);
  }
}

/** Puts it there as a whole; if `replace` is false and another process was faster, its secret stays. */
function write(file: string, secret: string, replace: boolean): void {
  const part = partOf(file);
  try {
    const descriptor = fs.openSync(part, "wx", privateFileMode);
    try {
      fs.fchmodSync(descriptor, privateFileMode); // regardless of the umask
      fs.writeSync(descriptor, `${secret}\n`);
      fs.fsyncSync(descriptor);
    } finally {
      fs.closeSync(descriptor);
    }
    if (replace || !linked(part, file)) fs.renameSync(part, file);
  } finally {
    fs.rmSync(part, { force: true });
  }
}

/** Whether there is a file of that name now. false: the disk knows no links. */
function linked(part: string, file: string): boolean {
  try {
    fs.linkSync(part, file);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EEXIST";
  }
}

/** Why others could have read or written it; undefined: only this user and root. */
function whyOpen(facts: fs.Stats, what: "file" | "folder"): string | undefined {
  if (facts.isSymbolicLink()) return "it is a link";
  if (what === "file" ? !facts.isFile() : !facts.isDirectory()) return `it is no plain ${what}`;
  if (process.getuid === undefined) return undefined; // Windows has neither owners nor modes here
  if (facts.uid !== process.getuid()) return `it belongs to another user (${facts.uid})`;
  if ((facts.mode & 0o077) === 0) return undefined;
  return `others can open it (mode ${(facts.mode & 0o777).toString(8)})`;
}
