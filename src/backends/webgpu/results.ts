// Copies the results of a batch to the host at its end, or at the end of each section if the graph is split.

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

/** Whether it is all of a model. In a part of one nothing is submitted ahead, and whole rows are read where tokens are adjusted. */
export function isWholeModel(graph: Graph): boolean {
  const [{ takes } = { takes: [] }, ...later] = sectionsOf(graph);
  return takes.length === 0 && later.length === 0;
}
