// Joins the profiles of two backends that run one after the other: the parts of the first, then those of the second. The two
// have different threads, so the times of each are averaged over its threads and the result has one worker.

import type { Backend, BackendProfile, BatchPhase, PhaseTimes, SideProfile } from "./backend.ts";
import { EVENT_NUMBERS } from "./backend.ts";

/** The profiles of two backends; undefined: one of them recorded nothing. */
export function sideProfiles(backends: readonly Backend[]): [SideProfile, SideProfile] | undefined {
  const sides = backends.flatMap((backend) => {
    const profile = backend.profile?.();
    return profile ? [{ name: backend.name, profile, memory: backend.memory() }] : [];
  });
  return sides.length === 2 ? (sides as [SideProfile, SideProfile]) : undefined;
}

export function joinProfiles(
  name: string,
  sides: readonly [SideProfile, SideProfile],
  /** Whether both compute a part of every batch, or each has batches of its own. */
  batches: "shared" | "own" = "shared",
): BackendProfile {
  const [first, second] = sides.map(({ profile }) => profile) as [BackendProfile, BackendProfile];
  const phase = (which: BatchPhase): PhaseTimes => joinTimes(first, second, which, batches);
  const [mine = nothing] = first.events;
  const [other = nothing] = second.events;
  const numbers = other.numbers.slice();
  for (let at = 0; at < numbers.length; at += EVENT_NUMBERS) numbers[at]! += first.parts.length;
  return {
    parts: [...first.parts.map((part) => ({ ...part, isAlone: false })), ...second.parts],
    phases: { prompt: phase("prompt"), generation: phase("generation") },
    events: [
      {
        numbers: joined(mine.numbers, numbers),
        dropped: mine.dropped + other.dropped,
      },
    ],
    packMs: first.packMs + second.packMs,
    worker: name,
    sides,
    calls: [...(first.calls ?? []), ...(second.calls ?? [])],
    notes: [
      `times of ${name} are those of both, which take turns; of threads, the average`,
      ...(first.notes ?? []),
      ...(second.notes ?? []),
    ],
  };
}

const nothing = { numbers: new Float64Array(), dropped: 0 };

function joined(a: Float64Array, b: Float64Array): Float64Array {
  const both = new Float64Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

function joinTimes(
  first: BackendProfile,
  second: BackendProfile,
  phase: BatchPhase,
  batches: "shared" | "own",
): PhaseTimes {
  const [a, b] = [first.phases[phase], second.phases[phase]];
  const busy = [...averages(a, first.parts.length), ...averages(b, second.parts.length)];
  return {
    batchMs: a.batchMs + b.batchMs,
    sizes: batches === "shared" ? a.sizes : [...a.sizes, ...b.sizes],
    busyMs: [Float64Array.from(busy)],
  };
}

function averages({ busyMs }: PhaseTimes, parts: number): number[] {
  return Array.from({ length: parts }, (_, part) => {
    const sum = busyMs.reduce((all, thread) => all + thread[part]!, 0);
    return busyMs.length > 0 ? sum / busyMs.length : 0;
  });
}
