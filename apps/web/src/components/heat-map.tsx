// The result of tuning: the fastest kernel for each matmul shape (a row) and number of tokens (a column). One colour
// per kernel; the list below names them, and the crossovers between them.

import type { JSX } from "preact";
import type { TuneView } from "../api-types.ts";
import { digits } from "../state/format.ts";
import { ScrollX } from "./scroll-x.tsx";

type Group = TuneView["groups"][number];

export function HeatMap({ tune }: { tune: TuneView }): JSX.Element {
  const tokens = [...new Set(tune.groups.flatMap(({ points }) => points.map(({ m }) => m)))].sort(
    (a, b) => a - b,
  );
  const used = [
    ...new Set(tune.groups.flatMap(({ points }) => points.map(({ best }) => best.profile))),
  ].sort((a, b) => a - b);
  const colour = (profile: number): string => `hue-${used.indexOf(profile) % 10}`;
  return (
    <>
      <ScrollX label="Tuned kernels">
        <table class="heat">
          <thead>
            <tr>
              <th scope="col">shape</th>
              <th scope="col">threads</th>
              {tokens.map((m) => (
                <th key={m} scope="col" class="number">
                  {m}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {tune.groups.map((group) => (
              <tr key={`${group.dtype} ${group.n} ${group.k} ${group.threads}`}>
                <th scope="row">
                  {group.dtype} {group.n}×{group.k}
                </th>
                <td class="number">{group.threads}</td>
                {tokens.map((m) => (
                  <Cell key={m} group={group} m={m} colour={colour} tune={tune} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollX>
      <ul class="heat-legend">
        {used.map((profile) => (
          <li key={profile}>
            <span class={`swatch ${colour(profile)}`} /> {profileName(tune, profile)}
          </li>
        ))}
      </ul>
    </>
  );
}

interface CellProps {
  group: Group;
  m: number;
  colour(profile: number): string;
  tune: TuneView;
}

function Cell({ group, m, colour, tune }: CellProps): JSX.Element {
  const point = group.points.find((one) => one.m === m);
  if (!point) return <td />;
  const gain = point.usual ? point.usual.us / point.best.us : 1;
  const name = profileName(tune, point.best.profile);
  const speed = `${digits(point.opsPerSecond / 1e9)} GOPS`;
  const better = gain > 1.005 ? `, ${digits(gain)} times as fast as the default` : "";
  return (
    <td
      class={`cell ${colour(point.best.profile)}`}
      title={`${m} tokens: ${name}, ${speed}${better}`}
    >
      <span>{gain > 1.05 ? `${digits(gain)}×` : ""}</span>
    </td>
  );
}

function profileName({ profiles }: TuneView, at: number): string {
  const profile = profiles[at];
  if (!profile) return `profile ${at}`;
  return `${profile.variant}${profile.idle === "sleep" ? ", sleeping" : ""}`;
}

/** The number of tokens at which one kernel takes over from another, in words. */
export function Crossovers({ tune }: { tune: TuneView }): JSX.Element | null {
  const found = tune.groups.flatMap((group) =>
    group.crossovers.map((crossover) => ({ group, crossover })),
  );
  if (found.length === 0) return null;
  return (
    <details>
      <summary>{found.length} crossovers: where another kernel becomes the fastest</summary>
      <ul class="plain">
        {found.map(({ group, crossover }) => (
          <li key={`${group.dtype} ${group.n} ${group.k} ${group.threads} ${crossover.m}`}>
            {group.dtype} {group.n}×{group.k}, {group.threads} thread
            {group.threads === 1 ? "" : "s"}: from {crossover.m} tokens on{" "}
            <b>{profileName(tune, crossover.to)}</b> beats {profileName(tune, crossover.from)}
          </li>
        ))}
      </ul>
    </details>
  );
}
