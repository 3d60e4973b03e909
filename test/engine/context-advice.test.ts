// What is advised where a text does not fit: nothing that cannot be.

import { expect, test } from "vitest";
import { endNotes } from "../../apps/cli/end-notes.ts";
import { contextExceeded } from "../../apps/server/errors.ts";
import { tooLong } from "../../apps/sessions/prompt.ts";
import { latest } from "../../apps/sessions/window.ts";
import { contextAdvice } from "../../src/base/context-advice.ts";
import { AnswerError, ContextError, type ModelInfo, open } from "../../src/index.ts";
import { programFolders, sourceFiles } from "../rules/scan.ts";
import { tinyFile } from "../support/tiny-file.ts";

const trainedContext = 256;
const some = { name: "tiny", contextSize: 128, trainedContext };
const all = { name: "tiny", contextSize: trainedContext, trainedContext };

test("a larger context is advised only where the model was trained for one", () => {
  expect(contextAdvice(some)).toContain("larger contextSize");
  expect(contextAdvice(all)).toBe("Shorten it: this model was trained for 256 tokens");
});

const long = { tokens: Array.from({ length: 300 }, () => 1), read: async () => ({}) };
const sayings: Record<string, (info: typeof some) => string | Promise<string>> = {
  "the server": (info) => contextExceeded(300, info, "prompt").message,
  "the command line": (info) => endNotes.context!(info as ModelInfo),
  "a conversation": (info) => tooLong(info, 300).message,
  "a window of messages": async (info) => {
    const turn = { role: "user" as const };
    const read = async () => ({ tokens: long.tokens }) as never;
    return await latest([turn], info, undefined, read).then(
      () => "",
      (error: Error) => error.message,
    );
  },
};

test.each(Object.entries(sayings))("%s says so, too", async (_, say) => {
  expect(await say(some)).toMatch(/larger (-c|context)/);
  const told = await say(all);
  expect(told).toContain("this model was trained for 256 tokens");
  expect(told).not.toMatch(/a larger (-c|context)/);
});

test("an answer of a schema that the context cuts off", async () => {
  const file = await tinyFile();
  const schema = { type: "array", items: { type: "string" }, minItems: 400 };
  const toldOf = async (contextSize: number): Promise<string> => {
    await using model = await open(file.path, { contextSize, threads: 1 });
    const sent = model.chat({ temperature: 0 }).send("the cat", { schema });
    const error: unknown = await sent.result.catch((reason: unknown) => reason);
    expect(error instanceof AnswerError || error instanceof ContextError).toBe(true);
    return (error as Error).message;
  };
  expect(await toldOf(64)).toContain(
    "the context was full. Shorten it, or use a larger contextSize",
  );
  expect(await toldOf(512)).toContain("Shorten it: this model was trained for 512 tokens");
  file.remove();
});

test("nobody else advises it", () => {
  const advising = sourceFiles(...programFolders).filter(({ text }) =>
    text
      .split("\n")
      .some(
        (line) =>
          /(open the model|load the model|start the server) with a larger (context|-c)\b|use a larger contextSize\b/i.test(
            line,
          ) && !/contextAdvice|canBeLarger|^\s*(\?|\[|\/\/)|^ {4}"/.test(line),
      ),
  );
  expect(advising.map(({ path }) => path)).toEqual([
    "src/base/context-advice.ts",
    "src/engine/saved/state-file.ts", // what was saved with a larger one
  ]);
});
