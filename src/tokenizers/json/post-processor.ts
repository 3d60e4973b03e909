// The post-processors of tokenizer.json: the special tokens before and after a text. One table entry per type.

import { ModelError } from "../../base/errors.ts";
import {
  asArray,
  asRecord,
  asString,
  asTokenId,
  failField,
  type JsonRecord,
  type Maker,
  makePiece,
} from "./fields.ts";

export interface Frame {
  prefix: readonly number[];
  suffix: readonly number[];
}

const ROLE = "post_processor";

const processors: Readonly<Record<string, Maker<Frame>>> = {
  Sequence: ({ processors: list }) => {
    const frames = asArray(list, `${ROLE}.processors`).map(makePostProcessor);
    return {
      prefix: frames.toReversed().flatMap((frame) => frame.prefix),
      suffix: frames.flatMap((frame) => frame.suffix),
    };
  },
  ByteLevel: () => ({ prefix: [], suffix: [] }), // trims offsets, which are not used here
  BertProcessing: clsAndSep,
  RobertaProcessing: clsAndSep,
  TemplateProcessing: (piece) => {
    const ids = asRecord(piece.special_tokens, `${ROLE}.special_tokens`);
    const prefix: number[] = [];
    const suffix: number[] = [];
    let seen = 0;
    for (const entry of asArray(piece.single, `${ROLE}.single`)) {
      const item = asRecord(entry, `${ROLE}.single`);
      if (item.SpecialToken === undefined) seen++;
      else (seen === 0 ? prefix : suffix).push(...specialIds(item.SpecialToken, ids));
    }
    if (seen !== 1) {
      throw new ModelError(
        `tokenizer.json: the TemplateProcessing has the text ${seen} times; once is supported`,
      );
    }
    return { prefix, suffix };
  },
};

export function makePostProcessor(value: unknown): Frame {
  if (value === undefined || value === null) return { prefix: [], suffix: [] };
  return makePiece(ROLE, processors, value);
}

function specialIds(value: unknown, known: JsonRecord): number[] {
  const name = asString(asRecord(value, `${ROLE}.SpecialToken`).id, `${ROLE}.SpecialToken.id`);
  if (!Object.hasOwn(known, name)) {
    failField(`${ROLE}.special_tokens`, Object.keys(known), `an entry for ${JSON.stringify(name)}`);
  }
  const { ids } = asRecord(known[name], `${ROLE}.special_tokens`);
  return asArray(ids, `${ROLE}.special_tokens.ids`).map((id) => asTokenId(id, `${ROLE}.ids`));
}

/** Both are stored as ["[CLS]", 101]. */
function clsAndSep({ cls, sep }: JsonRecord): Frame {
  const id = (value: unknown, name: string): number =>
    asTokenId(asArray(value, `${ROLE}.${name}`)[1], `${ROLE}.${name}`);
  return { prefix: [id(cls, "cls")], suffix: [id(sep, "sep")] };
}
