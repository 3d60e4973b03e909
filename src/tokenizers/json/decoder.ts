// The decoders of tokenizer.json: which bytes a token adds to the text. One table entry per type.
//
// In tokenizer.json a decoder works on the list of all tokens; here it must work token by token, so that text can be
// streamed. Every decoder in use allows that: the only rule beyond a single token is "drop the first space of the
// text".

import { ModelError } from "../../base/errors.ts";
import { decodeByteLevel } from "../byte-level.ts";
import { cleanSpaces } from "../wordpiece.ts";
import { asArray, asString, booleanOr, type Maker, makePiece, stringOr } from "./fields.ts";
import { makePattern, replaceAll } from "./normalizer.ts";

export interface Decoder {
  bytesOf: (text: string) => Uint8Array;
  /** "<0x0A>" tokens are bytes. */
  byteFallback: boolean;
  /** Spaces to drop at the start of the text. */
  leadingSpaces: number;
}

/** A decoder under construction: each step adds to it. */
interface Draft {
  /** Changes to a token's text before it becomes bytes. */
  rewrite: ((text: string) => string)[];
  byteLevel: boolean;
  byteFallback: boolean;
  fused: boolean;
  leadingSpaces: number;
}

type Batch = (draft: Draft) => void;

const ROLE = "decoder";
const utf8 = new TextEncoder();

const steps: Readonly<Record<string, Maker<Batch>>> = {
  Sequence: ({ decoders }) => {
    const list = asArray(decoders, `${ROLE}.decoders`).map((step) => makePiece(ROLE, steps, step));
    return (draft) => {
      for (const step of list) step(draft);
    };
  },
  ByteLevel: () => (draft) => {
    draft.byteLevel = true;
  },
  ByteFallback: () => (draft) => {
    draft.byteFallback = true;
  },
  Fuse: () => (draft) => {
    draft.fused = true;
  },
  Replace: ({ pattern, content }) => {
    const search = makePattern(pattern, `${ROLE}.pattern`);
    const replacement = asString(content, `${ROLE}.content`);
    return (draft) => {
      if (draft.fused) refuse("Replace after Fuse");
      draft.rewrite.push((text) => replaceAll(text, search, replacement));
    };
  },
  Strip: (piece) => (draft) => {
    const { content, start, stop } = piece;
    if (content !== " " || typeof start !== "number" || stop !== 0 || !draft.fused) {
      refuse(`Strip as ${JSON.stringify(piece)}: only spaces at the start of the fused text are`);
    }
    draft.leadingSpaces = start as number;
  },
  Metaspace: (piece) => {
    const mark = stringOr(piece.replacement, "▁", `${ROLE}.replacement`);
    const legacy = booleanOr(piece.add_prefix_space, true, `${ROLE}.add_prefix_space`);
    const scheme = stringOr(piece.prepend_scheme, legacy ? "always" : "never", `${ROLE}.scheme`);
    return (draft) => {
      draft.rewrite.push((text) => text.replaceAll(mark, " "));
      draft.leadingSpaces = scheme === "never" ? 0 : 1;
    };
  },
  WordPiece: (piece) => {
    const prefix = stringOr(piece.prefix, "##", `${ROLE}.prefix`);
    const clean = booleanOr(piece.cleanup, true, `${ROLE}.cleanup`);
    return (draft) => {
      draft.rewrite.push(wordPiece(prefix, clean));
      draft.leadingSpaces = 1;
    };
  },
};

export function makeDecoder(value: unknown): Decoder {
  const draft: Draft = {
    rewrite: [],
    byteLevel: false,
    byteFallback: false,
    fused: false,
    leadingSpaces: 0,
  };
  if (value === undefined || value === null) {
    // Without a decoder, tokens are words separated by spaces.
    draft.rewrite.push((text) => ` ${text}`);
    draft.leadingSpaces = 1;
  } else makePiece(ROLE, steps, value)(draft);
  const toBytes = draft.byteLevel ? decodeByteLevel : (text: string) => utf8.encode(text);
  return {
    bytesOf: (text) => toBytes(draft.rewrite.reduce((result, step) => step(result), text)),
    byteFallback: draft.byteFallback,
    leadingSpaces: draft.leadingSpaces,
  };
}

function wordPiece(prefix: string, clean: boolean): (text: string) => string {
  return (text) => {
    const spaced = text.startsWith(prefix) ? text.slice(prefix.length) : ` ${text}`;
    return clean ? cleanSpaces(spaced) : spaced;
  };
}

function refuse(what: string): never {
  throw new ModelError(`tokenizer.json: the decoder step ${what} is not supported`);
}
