// What a batch copies to the host at its end, or at the end of each section where the graph is split.

import { type Graph, sectionsOf, type Value } from "../../graph/graph.ts";

/** The values that a section copies to the host: those that another part reads, and after the last one the result. */
export function resultsOf(graph: Graph, section: number): readonly Value[] {
  const sections = sectionsOf(graph);
  const { gives } = sections[section]!;
  const result = section === sections.length - 1 ? resultOf(graph) : undefined;
  return result ? [...gives, result] : gives;
}

/** The value that every batch copies to the host: logits, or an encoder's hidden states. */
export function resultOf({ outputs }: Graph): Value | undefined {
  return outputs.logits ?? outputs.hidden;
}
