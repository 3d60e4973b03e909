// LoRA adapters: small valid files with damaged fields, opened with the model that they are for, which is whole; then a few tokens.

import { seededRandom } from "../../formats/mutate.ts";
import { adapterGguf } from "../../support/adapter-file.ts";
import { tinyModel } from "../../support/tiny-engine.ts";
import { tinyFileVocab, tinyGguf } from "../../support/tiny-file.ts";
import {
  applySegmentEdits,
  gentleSegmentEdit,
  randomSegmentEdit,
  type Segment,
  type SegmentEdit,
} from "../segments.ts";
import type { FuzzTarget, Json } from "../target.ts";
import { runHere } from "../whole-run.ts";
import { ggufSegments } from "./gguf.ts";

interface Input {
  base: string;
  edits: SegmentEdit[];
}

const bases = new Map<string, Segment[]>();
let model: Uint8Array<ArrayBuffer>;

export const target: FuzzTarget = {
  name: "adapter",
  describe: "damaged LoRA adapters, opened with a model: header, metadata, factors, a few tokens",
  async prepare() {
    const tiny = tinyModel({ vocab: tinyFileVocab });
    model = new Uint8Array(await tinyGguf({ model: tiny }));
    const few = /^(blk\.0\.(attn_q|ffn_down)|token_embd)\.weight$/;
    const invocation = { type: "array<u32>", value: [5, 6] };
    for (const [name, more] of Object.entries({
      plain: { tensors: few },
      half: { tensors: few, type: "f16", alpha: 0, rank: 2 },
      activated: { more: [["adapter.alora.invocation_tokens", invocation] as const] },
    })) {
      bases.set(name, ggufSegments(await adapterGguf(tiny.tensors, more as object)));
    }
  },
  make(seed, base) {
    const random = seededRandom(seed);
    const from = base as unknown as Input | undefined;
    const name = from?.base ?? random.pick([...bases.keys()]);
    const edits = [...(from?.edits ?? [])];
    const segments = bases.get(name)!;
    const change = random.below(2) === 0 ? gentleSegmentEdit : randomSegmentEdit;
    for (let i = 1 + random.below(3); i > 0; i--) edits.push(change(segments, random));
    return { base: name, edits } as unknown as Json;
  },
  async run(_seed, value) {
    const { base, edits } = value as unknown as Input;
    const segments = bases.get(base);
    if (!segments || !Array.isArray(edits)) return undefined;
    const files = { "m.gguf": model, "a.gguf": applySegmentEdits(segments, edits) };
    return await runHere(files, "m.gguf", "a.gguf");
  },
};
