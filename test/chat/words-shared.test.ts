// Words are words, over the templates of real models: each with a vocabulary that has its marks, and with real vocabularies. A prompt
// without special text has the tokens that its text has as a whole.

import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { ChatTemplate } from "../../src/chat/template.ts";
import { tokenizerFromJson } from "../../src/tokenizers/from-json.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { describeShared, hasShared, sharedPath } from "../support/shared.ts";
import { ggufMetadata, readJson } from "../tokenizers/support.ts";
import {
  conversations,
  type Fill,
  harmlessly,
  markIds,
  marksIn,
  marksOf,
  spoofs,
  tryRender,
  vocabularyWith,
} from "./words.ts";

const sources = hasShared("chat-templates")
  ? readdirSync(sharedPath("chat-templates"))
      .filter((name) => name.endsWith(".jinja"))
      .map((name) => ({ name, source: readFileSync(sharedPath(`chat-templates/${name}`), "utf8") }))
  : [];

const own = { addSpecial: false };
/** Where an answer contains marks of reasoning, some templates write it again in their own words. */
const isReasoning = (mark: string): boolean => /think/i.test(mark);
const besidesReasoning = (marks: readonly string[]): string[] =>
  marks.filter((mark) => !isReasoning(mark));

describeShared("real templates", "chat-templates", () => {
  it.each(sources)("$name: no text changes the number of turns", ({ source }) => {
    const tokenizer = vocabularyWith(marksOf(source));
    const ids = markIds(tokenizer);
    const [bos] = ids.values();
    const template = new ChatTemplate(source, { bos: bos!, eos: "<|endoftext|>" });
    let rendered = 0;
    for (const conversation of conversations) {
      const plain = tryRender(template, conversation, harmlessly);
      if (plain === undefined) continue;
      rendered++;
      expect(tokenizer.encode(plain, own)).toEqual(tokenizer.encode(plain.text, own));
      const expected = marksIn(tokenizer, ids, plain);
      const fields = new Set<string>();
      const note: Fill = (field, harmless) => {
        fields.add(field);
        return harmless;
      };
      conversation.make(note);
      for (const field of fields) {
        const counted = field === "assistant" ? besidesReasoning : (all: string[]) => all;
        for (const spoof of spoofs([...ids.values()])) {
          const prompt = tryRender(template, conversation, (at, harmless) =>
            at === field ? spoof : harmless,
          );
          if (prompt === undefined) continue; // the template refuses it
          const where = `${conversation.name}: ${field}: ${spoof}`;
          expect(counted(marksIn(tokenizer, ids, prompt)), where).toEqual(counted(expected));
        }
      }
    }
    expect(rendered).toBeGreaterThan(0);
  });
});

const vocabularies: readonly { path: string; read(): Promise<Tokenizer> }[] = [
  ..."bert-bge deepseek-llm falcon gpt-2 llama-bpe llama-spm phi-3 qwen2"
    .split(" ")
    .map((name) => `vocab/ggml-vocab-${name}.gguf`),
  "models/minimind2-small/minimind2-small-Q6_K.gguf",
  "models/stories15M/stories15M-Q4_0.gguf",
  "models/minimind2-small/tokenizer.json",
  "models/story/tokenizer.json",
].map((path) => ({
  path,
  read: async () => {
    const at = sharedPath(path);
    if (!path.endsWith(".json")) return tokenizerFromMetadata(await ggufMetadata(at));
    return tokenizerFromJson(readJson(at), readJson(at.replace(/\.json$/, "_config.json")));
  },
}));

for (const { path, read } of vocabularies) {
  describeShared(path, path, () => {
    it("no text in any real template becomes a special token", async () => {
      const tokenizer = await read();
      const ids = markIds(tokenizer);
      const marks = [...ids.values()];
      expect(marks.length).toBeGreaterThan(0);
      // Some of them, where there are hundreds, and each of them by itself.
      const some = marks.slice(0, 12);
      for (const mark of marks) {
        const found = tokenizer.encode({ text: `a${mark}b ${mark}`, template: [] }, own);
        expect(
          found.filter((id) => ids.has(id) && ids.get(id) !== "<unk>" && ids.get(id) !== "[UNK]"),
        ).toEqual([]);
      }
      for (const { name, source } of sources) {
        const template = new ChatTemplate(source, { bos: some[0]!, eos: some.at(-1)! });
        for (const [i, conversation] of conversations.entries()) {
          const plain = tryRender(template, conversation, harmlessly);
          if (plain === undefined) continue;
          expect(tokenizer.encode(plain, own), name).toEqual(tokenizer.encode(plain.text, own));
          const counted = (all: string[]) =>
            besidesReasoning(all).filter((mark) => !/unk/i.test(mark));
          const expected = counted(marksIn(tokenizer, ids, plain));
          const spoof = spoofs(some)[i % spoofs(some).length]!;
          const prompt = tryRender(template, conversation, (_, harmless) => `${harmless} ${spoof}`);
          if (prompt === undefined) continue;
          expect(counted(marksIn(tokenizer, ids, prompt)), `${name} ${spoof}`).toEqual(expected);
        }
      }
    });
  });
}
