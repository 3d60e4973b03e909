// Sums up a phase's time in one sentence: the largest shares, at most three, and for an op how close it is to
// the hardware's limit.

import type { PhaseProfile } from "../api/api.ts";

/** Smaller shares are left out. */
const NOTABLE = 0.05;
const MOST = 3;

interface Share {
  readonly share: number;
  /** Completes "81% of generation is". */
  readonly text: string;
}

export function bottleneckOf(profile: Omit<PhaseProfile, "summary">): string {
  const shares = [...opShares(profile), waitingShare(profile), betweenShare(profile)]
    .filter(({ share }) => share >= NOTABLE)
    .sort((a, b) => b.share - a.share)
    .slice(0, MOST);
  const [first, ...rest] = shares;
  if (!first) return `${phaseName(profile)} spends its time evenly`;
  const others = rest.map(({ share, text }) => `; ${percent(share)} is ${text}`).join("");
  return `${percent(first.share)} of ${phaseName(profile)} is ${first.text}${others}`;
}

function opShares({ ops, batchMs, ms }: Omit<PhaseProfile, "summary">): Share[] {
  // The backend records no ops, so only the batches as a whole are known.
  if (ops.length === 0) return [{ share: batchMs / ms, text: "computing batches" }];
  return ops.map(({ name, share, limit }) => {
    const reached = limit ? `, at ${percent(limit.fraction)} of the ${limit.resource} limit` : "";
    return { share, text: `${name}${reached}` };
  });
}

function waitingShare(profile: Omit<PhaseProfile, "summary">): Share {
  const { waitingMs, aloneMs, threads, ms, worker } = profile;
  if (worker !== undefined) {
    return {
      share: waitingMs / ms,
      text: `the ${worker} going from op to op, and transfers to it and back`,
    };
  }
  // While one thread works alone, all others wait for it.
  const forOne = threads.length > 0 ? (aloneMs * (threads.length - 1)) / threads.length : 0;
  const why =
    forOne > waitingMs / 2
      ? "waiting for work that one thread does alone"
      : threads.length > 1
        ? "threads waiting for each other"
        : "going from op to op";
  return { share: waitingMs / ms, text: why };
}

const betweenNames: Readonly<Record<keyof PhaseProfile["between"], string>> = {
  requestMs: "taking the request",
  bookkeepingMs: "bookkeeping",
  logitsMs: "reading logits",
  samplingMs: "sampling",
  textMs: "detokenizing",
  messagesMs: "messages to the caller",
};

function betweenShare({ between, betweenMs, ms }: Omit<PhaseProfile, "summary">): Share {
  const entries = Object.entries(between) as [keyof PhaseProfile["between"], number][];
  const [largest] = entries.sort((a, b) => b[1] - a[1])[0]!;
  return { share: betweenMs / ms, text: `between batches, mostly ${betweenNames[largest]}` };
}

function phaseName({ phase }: Pick<PhaseProfile, "phase">): string {
  return phase === "prompt" ? "the prompt" : "generation";
}

function percent(share: number): string {
  return `${Math.round(share * 100)}%`;
}
