// Makes the tiers of a loaded model: the facts that its state depends on become the first key.

import type { Backend } from "../../backends/backend.ts";
import { hex, sha256 } from "../../base/sha256.ts";
import { type KvDType, kvTypeName } from "../../dtypes/kv-types.ts";
import type { Graph } from "../../graph/graph.ts";
import type { BlockFolders } from "../../platform/block-files.ts";
import type { StateCapacity } from "../state/state-capacity.ts";
import type { CacheCounts } from "./cache-counts.ts";
import { Checkpoints } from "./checkpoints.ts";
import { CopyWorth } from "./copy-worth.ts";
import { DiskTier } from "./disk-tier.ts";
import { ROUNDING_VERSION, rootKey } from "./keys.ts";
import { RamTier } from "./ram-tier.ts";
import { StaleState } from "./stale-state.ts";
import type { StateAbout } from "./state-about.ts";
import { StateTiers } from "./state-tiers.ts";

export interface TierOptions {
  /** Bytes in the host's memory; 0: none. */
  readonly ramBytes: number;
  /** Bytes on disk; 0: none. */
  readonly diskBytes: number;
  /** The folders; undefined: this platform stores none. */
  readonly folders: BlockFolders | undefined;
  /** The model's name, for people. */
  readonly model: string;
  /** The facts that numbers depend on besides the graph and the backend: the weights, and the precision of their computation. */
  readonly weights: string;
  readonly exact: boolean;
  now(): number;
}

export interface TieredModel {
  readonly backend: Backend;
  readonly graph: Graph;
  readonly kvType: KvDType;
  readonly room: StateCapacity;
  readonly contextSize: number;
  /** Tokens of a whole batch of a prompt. */
  readonly batchTokens: number;
}

/** undefined: no copies are wanted, or the backend keeps its state to itself, which is said. */
export function openTiers(
  { backend, graph, kvType, room, contextSize, batchTokens }: TieredModel,
  options: TierOptions,
  say: (sentence: string) => void,
  counts?: CacheCounts,
): StateTiers | undefined {
  const { ramBytes, diskBytes, folders, now } = options;
  if (ramBytes <= 0 && diskBytes <= 0) return undefined;
  if (!backend.transfer) {
    say(`state is not kept outside of the KV cache: backend "${backend.name}" keeps it to itself`);
    return undefined;
  }
  const kinds = room.tierKinds;
  if (kinds.length === 0) return undefined;
  const places = (backend.placement?.() ?? []).map(({ backend: name, layers, phase = "" }) =>
    `${name} ${layers} ${phase}`.trim(),
  );
  const about: StateAbout = {
    model: options.model,
    weights: options.weights,
    graph: graphFacts(graph),
    kvType: kvTypeName(kvType),
    backend: [backend.name, backend.adapter ?? "", ...places].filter(Boolean).join(", "),
    kernels: backend.kernels ?? "",
    exact: options.exact ? "on" : "off",
    rounding: String(ROUNDING_VERSION),
  };
  const { model: _, ...facts } = about; // a file may be renamed
  const root = rootKey(Object.values(facts));
  const said = new Set<string>();
  const once = (sentence: string) => {
    if (said.has(sentence)) return;
    said.add(sentence);
    say(sentence);
  };
  if (diskBytes > 0 && !folders) once("state is not kept on disk: there is none on this platform");
  const onUnit: StateTiers["onUnit"] = (unit) => tiers.onUnit(unit);
  const onLost: StateTiers["onLost"] = (id, reason) => tiers.onLost(id, reason);
  const onDrop = (id: string): void => {
    if (counts) counts.evicted.ram++;
    onLost(id, "budget");
  };
  const unitBytes = kinds.map((kind) => kind.unitBytes);
  const disk =
    diskBytes > 0 && folders
      ? { folders, root, budgetBytes: diskBytes, unitBytes, onUnit, onLost, about, say: once, now }
      : undefined;
  const budgetBytes = Math.max(ramBytes, disk ? diskBytes : 0);
  const checkpoints = new Checkpoints({ kinds, contextSize, batchTokens, budgetBytes });
  room.checkpoints = checkpoints;
  const tiers: StateTiers = new StateTiers({
    root,
    kinds,
    checkpoints,
    // The processor's own cache is copied as fast as memory is read.
    worth: backend.computesApart
      ? new CopyWorth(room.bytesPerToken, () => room.admission.running > 1)
      : undefined,
    // Asked for each time: after growKv() a GPU's blocks lie in other buffers.
    get transfer() {
      return backend.transfer!;
    },
    now,
    say: once,
    ram: new RamTier(ramBytes, onDrop),
    // Not before the model is open: the first to wait for it is the first prompt.
    disk: Promise.resolve().then(
      () => disk && DiskTier.open({ ...disk, ...(counts && { counts }) }),
    ),
    diskBudgetBytes: disk?.budgetBytes ?? 0,
    ...(counts && { counts }),
    stale: disk && new StaleState(disk.folders, root, about),
  });
  return tiers;
}

/** The computation without the weights' numbers: ops, shapes, windows, positions. */
export function graphFacts({ nodes, weights, states }: Graph): string {
  const plain = JSON.stringify([nodes, weights, states], (_, value: unknown) => {
    if (value instanceof Float32Array) return [...value];
    const isType = typeof value === "object" && value !== null && "blockElems" in value;
    return isType ? (value as unknown as { name: string }).name : value;
  });
  return hex(sha256(new TextEncoder().encode(plain)));
}
