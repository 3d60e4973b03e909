// The owners of state: the conversation in which it was computed, or none. State is found by its tokens, so conversations that begin alike
// share it; it is erased when the last of its owners is forgotten. On disk an owner is a hash: no file holds the id of a conversation.

import { hex, sha256 } from "../../base/sha256.ts";
import { KEY_BYTES, keyBytes } from "./keys.ts";

/** 128 bits in hexadecimal, or "": a request that belongs to no conversation. With a mark before it: never written to disk. */
export type Owner = string;

const MARK = "-";
export const NOBODY: Owner = "";

/** The owner of a request's state. `cacheDisk` false: none of it is kept on disk. */
export function ownerOf(conversation: string | undefined, cacheDisk = true): Owner {
  const bytes = new TextEncoder().encode(`lantern conversation ${conversation}`);
  const name = conversation === undefined ? NOBODY : hex(sha256(bytes).subarray(0, KEY_BYTES));
  return cacheDisk ? name : MARK + name;
}

export const isPrivate = (owner: Owner): boolean => owner.startsWith(MARK);

/** The owner for a reader of a text's state that computes nothing, to save it: state it has read is forgotten with any conversation. */
export const ONLOOKER: Owner = `${MARK}onlooker`;

/** All owners of a conversation's state in memory, with any `cacheDisk` of its requests. */
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
