// Whose state it is: the conversation in which it was computed, or nobody's. State is found by its tokens, so conversations that begin
// alike share it; it is erased when the last of its owners is forgotten. On disk an owner is a hash: no id of a conversation is in a file.

import { hex, sha256 } from "../../base/sha256.ts";
import { KEY_BYTES, keyBytes } from "./keys.ts";

/** 128 bits in hexadecimal, or "": a request that belongs to no conversation. With a mark before it: never written to disk. */
export type Owner = string;

const MARK = "-";
export const NOBODY: Owner = "";

/** Of a request. `cacheDisk` false: nothing of it is kept on disk. */
export function ownerOf(conversation: string | undefined, cacheDisk = true): Owner {
  const bytes = new TextEncoder().encode(`lantern conversation ${conversation}`);
  const name = conversation === undefined ? NOBODY : hex(sha256(bytes).subarray(0, KEY_BYTES));
  return cacheDisk ? name : MARK + name;
}

export const isPrivate = (owner: Owner): boolean => owner.startsWith(MARK);

/** Whoever looks at the state of a text without computing anything, to save it: what it looked at is forgotten with any conversation. */
export const ONLOOKER: Owner = `${MARK}onlooker`;

/** All under which something of a conversation is kept in memory, whatever its requests said of the disk. */
export function ownersOf(conversation: string): Owner[] {
  return [ownerOf(conversation), ownerOf(conversation, false), ONLOOKER];
}

export function ownerBytes(owner: Owner): Uint8Array {
  if (isPrivate(owner)) throw new Error("private state was about to be written");
  return owner === NOBODY ? new Uint8Array(KEY_BYTES) : keyBytes(owner);
}

export function ownerFrom(bytes: Uint8Array): Owner {
  const own = bytes.subarray(0, KEY_BYTES);
  return own.every((byte) => byte === 0) ? NOBODY : hex(own);
}
