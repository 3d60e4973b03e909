// The kinds of source, one line each.

import type { CatalogSource } from "../catalog.ts";
import { hubSource } from "./hub.ts";
import { npmSource } from "./npm.ts";
import type { SourceKind } from "./source.ts";

type SourceTable = {
  [K in CatalogSource["kind"]]: SourceKind<Extract<CatalogSource, { kind: K }>>;
};

const sources: SourceTable = {
  npm: npmSource,
  hub: hubSource,
};

export function sourceKind(source: CatalogSource): SourceKind<CatalogSource> {
  return sources[source.kind] as SourceKind<CatalogSource>;
}
