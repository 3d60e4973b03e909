// Counts a model's layers on a device, as -ngl does.

import type { LayerPlace } from "../backends/backend.ts";

/** The output counts as one. */
export function deviceLayers(placement: readonly LayerPlace[]): { layers: number; all: number } {
  const count = (places: readonly LayerPlace[]) =>
    places.reduce((sum, { layers, hasOutput }) => sum + layers + (hasOutput ? 1 : 0), 0);
  const isWhole = placement.filter(({ hasOutput }) => hasOutput).length > 1; // each side has all of it
  const all = isWhole ? count(placement.slice(0, 1)) : count(placement);
  return { layers: count(placement.filter(({ isDevice }) => isDevice)), all };
}
