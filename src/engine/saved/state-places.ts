// The locations of saved state: a file that the platform opens, or bytes in memory. The host (../host.ts) answers requests with it.

import type { LoadedState, SavedState } from "../../api/api.ts";
import { AbortedError, UsageError } from "../../base/errors.ts";
import type { SavedStatePlace } from "../protocol.ts";
import type { RunControl } from "../run-control.ts";
import type { Crc32 } from "../tiers/segment.ts";
import type { SavedStates } from "./saved-states.ts";
import type { StateSink, StateSource } from "./state-file.ts";

/** A file that is there when it is finished, and not before. */
export interface StateFile extends StateSink {
  finish(): Promise<void>;
  discard(): Promise<void>;
}

/** The platform's part. */
export interface StatePlaces {
  /** Makes a file of this many bytes that only this user can read; undefined: this platform has no files. */
  readonly create: ((path: string, bytes: number) => Promise<StateFile>) | undefined;
  open(
    place: Exclude<SavedStatePlace, { kind: "bytes" }>,
  ): Promise<StateSource & { close(): Promise<void> }>;
  crc32(): Promise<Crc32>;
}

export async function saveTo(
  saved: SavedStates,
  places: StatePlaces,
  { tokens, path }: { tokens: readonly number[]; path: string | undefined },
  control: RunControl,
): Promise<SavedState & { data?: Uint8Array }> {
  const { create } = places;
  if (path !== undefined && !create) {
    throw new UsageError("saveState(): there are no files on this platform. Use stateBytes()");
  }
  const started = control.now();
  const how = { crc32: await places.crc32(), isAborted: () => control.aborted };
  let file: StateFile | undefined;
  let data: Uint8Array | undefined;
  try {
    const found = await saved.save(tokens, how, async (bytes) => {
      const memory = path === undefined ? new MemoryFile(bytes) : undefined;
      data = memory?.data;
      file = memory ?? (await create!(path!, bytes));
      return stopping(file, control);
    });
    await file?.finish();
    return { ...found, ms: control.now() - started, ...(data && { data }) };
  } catch (error) {
    await file?.discard();
    throw error;
  }
}

export async function loadFrom(
  saved: SavedStates,
  places: StatePlaces,
  from: SavedStatePlace,
  control: RunControl,
): Promise<LoadedState> {
  const started = control.now();
  const how = { crc32: await places.crc32(), isAborted: () => control.aborted };
  const source = from.kind === "bytes" ? memorySource(from.bytes) : await places.open(from);
  try {
    const readInto = async (offset: number, target: Uint8Array): Promise<void> => {
      await check(control);
      await source.readInto(offset, target);
    };
    const { name, size } = source;
    const tokens = await saved.load({ name, size, readInto }, how);
    return { tokenIds: [...tokens], bytes: size, ms: control.now() - started };
  } finally {
    await source.close();
  }
}

/** Gives up between two units. */
function stopping(sink: StateSink, control: RunControl): StateSink {
  return {
    write: async (bytes) => {
      await check(control);
      await sink.write(bytes);
    },
  };
}

async function check(control: RunControl): Promise<void> {
  await control.yieldThread();
  if (control.aborted) throw new AbortedError("saved state");
}

class MemoryFile implements StateFile {
  readonly data: Uint8Array;
  #at = 0;

  constructor(bytes: number) {
    this.data = new Uint8Array(bytes);
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.data.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  async finish(): Promise<void> {}
  async discard(): Promise<void> {}
}

function memorySource(bytes: Uint8Array): StateSource & { close(): Promise<void> } {
  return {
    name: "bytes in memory",
    size: bytes.length,
    readInto: async (offset, target) => target.set(bytes.subarray(offset, offset + target.length)),
    close: async () => {},
  };
}
