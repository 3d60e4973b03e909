// Grammars of answers that are several messages, each with a header (frames.ts reads them).

import type { FrameStyle } from "../../../api/answer-format.ts";
import type { GrammarSource } from "../../../api/grammar-source.ts";
import { argumentsJson, type CallGrammarOptions, callsGrammar } from "./call-grammars.ts";
import { any, either, literal, maybe, sequence, space, without } from "./parts.ts";

type FrameGrammar = (options: CallGrammarOptions, isForced: boolean) => GrammarSource;

export const frameGrammars: Readonly<Record<FrameStyle, FrameGrammar>> = {
  harmony(options, isForced) {
    const marks = ["<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>", "<|message|>"];
    const text = (channels: readonly string[]): GrammarSource =>
      sequence(
        literal("<|channel|>"),
        { choices: channels },
        literal("<|message|>"),
        without(...marks),
      );
    const next = sequence(literal("<|end|>"), literal("<|start|>assistant"));
    const json = sequence(space, maybe(literal("<|constrain|>")), maybe(literal("json")));
    const channel = sequence(literal("<|channel|>"), { choices: ["commentary", "analysis"] });
    const calls = options.tools.map((tool) => {
      const to = literal(`to=functions.${tool.name}`);
      const header = either([
        sequence(space, to, channel, json),
        sequence(channel, literal(" "), to, json),
      ]);
      return sequence(header, literal("<|message|>"), space, argumentsJson(tool));
    });
    const call = sequence(either(calls), maybe(literal("<|call|>")));
    const before = any(sequence(text(["analysis", "commentary"]), next));
    if (isForced) return sequence(before, call);
    const last = sequence(
      text(["analysis", "commentary", "final"]),
      maybe(either([literal("<|return|>"), literal("<|end|>")])),
    );
    return sequence(
      any(sequence(text(["analysis", "commentary", "final"]), next)),
      maybe(either([call, last])),
    );
  },
  "to-header"(options, isForced) {
    const marks = ["<|eom|>", "<|eot|>", "<|start|>", "<|message|>"];
    const text = (to: readonly string[]): GrammarSource =>
      sequence(literal(" to="), { choices: to }, literal("<|message|>"), without(...marks));
    const next = sequence(literal("<|eom|>"), literal("<|start|>assistant"));
    // The end of a call is the end of its message, too; the template's text for it is cut.
    const { call } = options.format;
    const cut = call.end.indexOf("<|", call.end.lastIndexOf(">") + 1);
    const end = cut < 0 ? call.end : call.end.slice(0, cut);
    const format = { ...options.format, call: { ...call, end } };
    const own = sequence(
      { regex: " to=(?!user|self)[^\\s<]{1,128}" },
      literal("<|message|>"),
      callsGrammar({ ...options, format }),
      maybe(either([literal("<|eom|>"), literal("<|eot|>")])),
    );
    if (isForced) return sequence(any(sequence(text(["self"]), next)), own);
    const last = sequence(text(["self", "user"]), maybe(literal("<|eot|>")));
    return sequence(any(sequence(text(["self", "user"]), next)), maybe(either([own, last])));
  },
  functionary({ tools, isParallel }, isForced) {
    const one = either(
      tools.map((tool) => sequence(literal(`${tool.name}\n`), argumentsJson(tool))),
    );
    const calls = isParallel ? sequence(one, any(sequence(literal(">>>"), one))) : one;
    if (isForced) return calls;
    const text = sequence(literal("all\n"), without(">>>"));
    return either([calls, sequence(text, maybe(sequence(literal(">>>"), calls)))]);
  },
};
