// lantern logits: the model's logits for every position of a prompt. For comparing engines and files.

import { defaultModel } from "../../../src/catalog/catalog.ts";
import { type LogitsResult, openTokenizer } from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { noBosHelp } from "../flag-help.ts";
import { numberFlag } from "../flag-values.ts";
import {
  addModelFlags,
  addPromptFlags,
  type ModelFlags,
  modelOf,
  type PromptFlags,
  promptOf,
} from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel, openModel } from "../load-model.ts";
import { tableText } from "../text.ts";

interface LogitsFlags extends ModelFlags, PromptFlags {
  top: number;
  predict: number;
  bos: boolean;
  json?: boolean;
}

const defaultPrompt = "Once upon a time";
const shownPerPosition = 3;
/** Other engines are compared with the reference and an F32 cache, which does not round. */
const exact = { cacheType: "f32", level: 1 } as const;

export const logitsCommand: CommandBody = {
  examples: [
    'lantern logits -p "Once upon a time"',
    'lantern logits -m model.gguf -p "The capital of France is" --top 10 -n 64 --json',
  ],
  define(command, context) {
    addPromptFlags(addModelFlags(command, defaultModel, exact), defaultPrompt)
      .option(
        "--top <n>",
        "show this many of the highest logits per position",
        numberFlag({ integer: true, min: 1 }),
        10,
      )
      .option(
        "-n, --predict <n>",
        "continue with this many tokens, each the most likely one",
        numberFlag({ integer: true, min: 0 }),
        0,
      )
      .option("--no-bos", noBosHelp)
      .option("--json", "print {tokens, positions: [{norm, top}], greedy, text}")
      .action((flags: LogitsFlags) => logits(flags, context));
  },
};

async function logits(flags: LogitsFlags, context: CliContext): Promise<void> {
  using interrupt = interruptible(context.terminal);
  const { signal } = interrupt;
  const prompt = await promptOf(flags, defaultPrompt, context.terminal);
  const path = await locateModel(modelOf(flags), context, signal);
  await using model = await openModel(path, flags, context, signal);
  const options = { top: flags.top, greedy: flags.predict, addBos: flags.bos, signal };
  const result = await model.logits(prompt, options);
  const text = flags.json ? `${JSON.stringify(result)}\n` : await readable(result, path);
  context.terminal.out(text);
}

async function readable(result: LogitsResult, path: string): Promise<string> {
  const tokenizer = await openTokenizer(path);
  const piece = (id: number): string => JSON.stringify(tokenizer.tokenText(id));
  const rows = [["position", "token", "text", "norm", "most likely next tokens (logit)"]];
  for (const [index, { norm, top }] of result.positions.entries()) {
    const id = result.tokens[index]!;
    const best = top
      .slice(0, shownPerPosition)
      .map(([topId, logit]) => `${topId} ${piece(topId)} ${logit.toFixed(3)}`);
    rows.push([String(index), String(id), piece(id), norm.toFixed(2), best.join("   ")]);
  }
  const table = tableText(rows, [0, 1, 3]);
  if (result.greedy.length === 0) return table;
  return `${table}\ngreedy: ${result.greedy.join(" ")}\ntext:   ${JSON.stringify(result.text)}\n`;
}
