// The grammars of bench/variants.ts: JSON objects, and an answer that may call tools (`tool_choice` auto).

import { toolGrammar } from "../src/index.ts";

/** So many objects that no run comes to their end. */
export const jsonObjects: string = String.raw`root ::= "[" (item ",\n"){400} item "]"
item ::= "{\"name\": " string ", \"tags\": [" string (", " string){0,3} "], \"value\": " number "}"
string ::= "\"" [^"\\\x00-\x1F]{0,24} "\""
number ::= "-"? [0-9]{1,6} ("." [0-9]{1,3})?`;

const weather = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" }, unit: { enum: ["C", "F"] } },
  required: ["city"],
};

/** Calls as Qwen and many others write them: free text up to the mark of a call. Most answers have none. */
export const toolCalls: NonNullable<ReturnType<typeof toolGrammar>> = toolGrammar({
  format: {
    reasoning: { start: "<think>", end: "</think>" },
    calls: {
      section: { start: "", end: "" },
      call: { start: "<tool_call>\n", end: "\n</tool_call>" },
      separator: "\n",
      gap: "\n",
      form: {
        kind: "json",
        nameKey: "name",
        argumentsKey: "arguments",
        idKey: undefined,
        innerKey: undefined,
        isList: false,
      },
      endsReasoning: false,
    },
    turnEnds: [],
  },
  tools: ["weather", "forecast", "search"].map((name) => ({ name, parameters: weather })),
  isForced: false,
  isParallel: true,
  start: { reasoning: "unknown", opening: "" },
})!;
