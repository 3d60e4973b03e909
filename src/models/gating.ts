// The activation of a gated feed-forward network, where a file names it: key `hidden_activation`.

import { byName } from "../base/by-name.ts";
import type { Activation } from "../graph/graph.ts";
import type { ConfigReader } from "./config-reader.ts";

/** The names that files give the activation of the gate. */
const activations: Readonly<Record<string, Activation>> = byName({
  gelu: "gelu",
  geglu: "gelu",
  silu: "silu",
  swish: "silu",
  swiglu: "silu",
  relu: "relu",
  reglu: "relu",
});

/** The functions of gate and up of a network before they are multiplied. */
export interface Gating {
  readonly activation: Activation;
  /** undefined: up is taken as it is. */
  readonly ofUp?: Activation;
}

/** As readGating(), and dReLU: a ReLU on both (Bamboo). */
export function readBothGates(read: ConfigReader, usual: Activation): Gating {
  const named = read.string("hidden_activation");
  if (named === "drelu") return { activation: "relu", ofUp: "relu" };
  return { activation: readGating(read, usual) };
}

/** `usual`: the activation of a file that names none. */
export function readGating(read: ConfigReader, usual: Activation): Activation {
  const named = read.string("hidden_activation");
  if (named === undefined) return usual;
  return (
    activations[named] ??
    read.fail("hidden_activation", `"${named}"`, `one of ${Object.keys(activations).join(", ")}`)
  );
}
