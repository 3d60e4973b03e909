// Data that a page reads from the server when it is opened, and again while it changes or cannot be read.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Poll } from "../../../../src/base/backoff.ts";
import { follow } from "./connection.ts";

export interface Followed<T> {
  /** null: not read yet. */
  value: T | null;
  /** The reason why the last read failed; null: it succeeded. */
  problem: string | null;
  /** Takes the answer of a request of the page. */
  take(value: T): void;
  /** Reads it now. */
  look(): Promise<void>;
  /** Called after a problem: does not wait for the next poll. */
  again(): void;
}

export function useFollowed<T>(
  read: () => Promise<T>,
  { everyMs, isMoving }: { everyMs: number; isMoving(value: T): boolean },
): Followed<T> {
  const [value, take] = useState<T | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const polling = useRef<Poll>(undefined);
  const isUnread = value === null;
  const isOn = isUnread || isMoving(value);
  useEffect(() => {
    if (!isOn) return;
    let isWanted = true;
    const look = async (): Promise<void> => {
      const found = await read();
      if (isWanted) take(found);
    };
    const made = follow(look, everyMs, (text) => isWanted && setProblem(text));
    polling.current = made;
    if (isUnread) made.now();
    return () => {
      isWanted = false;
      made.stop();
    };
  }, [isOn]);
  return {
    ...{ value, problem, take },
    look: async () => take(await read()),
    again: () => polling.current?.now(),
  };
}
