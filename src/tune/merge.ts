// Merges two measurements of the same machine into one file: a group, or a shape of layers, that was measured again replaces the old one.
// Profiles are matched by content, not by number.

import {
  isSameProblem,
  type StageTimes,
  type TuneFile,
  type TuneGroup,
  type TuneProfile,
} from "./tune-file.ts";

/** `newer` over `older`; a profile that only one of them has gets undefined times in the other's groups. */
export function mergeTuneFiles(older: TuneFile, newer: TuneFile): TuneFile {
  const keys = newer.profiles.map(keyOf);
  const added = older.profiles.filter((profile) => !keys.includes(keyOf(profile)));
  const profiles = [...newer.profiles, ...added];
  const kept = older.groups.filter((group) => !newer.groups.some((other) => isSame(group, other)));
  const notify = newer.notify ?? older.notify;
  const isNew = (shape: string) => newer.layers?.some((other) => other.shape === shape);
  const oldLayers = (older.layers ?? []).filter(({ shape }) => !isNew(shape));
  const layers = [...oldLayers, ...(newer.layers ?? [])];
  return {
    ...newer,
    ...(notify && { notify }),
    ...(layers.length > 0 && { layers }),
    profiles,
    groups: [
      ...kept.map((group) => renumber(group, older.profiles, profiles)),
      ...newer.groups.map((group) => renumber(group, newer.profiles, profiles)),
    ],
  };
}

function keyOf({ backend, level, variant, idle }: TuneProfile): string {
  return `${backend} ${level} ${variant} ${idle}`;
}

function isSame(a: TuneGroup, b: TuneGroup): boolean {
  return isSameProblem(a, b) && a.threads === b.threads;
}

function renumber(
  group: TuneGroup,
  from: readonly TuneProfile[],
  to: readonly TuneProfile[],
): TuneGroup {
  const place = new Map(from.map((profile, index) => [keyOf(profile), index]));
  const lines = group.lines.map(({ m, times }) => ({
    m,
    times: to.map((profile): StageTimes | undefined => {
      const index = place.get(keyOf(profile));
      return index === undefined ? undefined : times[index];
    }),
  }));
  return { ...group, lines };
}
