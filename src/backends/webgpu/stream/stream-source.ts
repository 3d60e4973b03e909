// Reads streamed matrices: from the model's files, through the system's file cache. It has them since the model was loaded, unless
// memory is short, so there is no second copy that cannot be evicted. The processor's own copy is packed for its kernels
// (cpu/memory/), in another way for each type and processor.

import { ModelError, SourceError } from "../../../base/errors.ts";
import { bytesFor } from "../../../dtypes/dtype.ts";
import { weightElements } from "../../../graph/cost.ts";
import type { Weight } from "../../../graph/graph.ts";
import { weightParts } from "../../../graph/weight-source.ts";
import type { DirectFile, FilePart } from "../../../platform/platform.ts";
import type { WeightFiles } from "../../backend.ts";

export interface StreamSource {
  /** Before the model's files are closed; throws if a weight is in none. */
  open(weights: readonly Weight[]): void;
  /** Fills `target` with bytes of a weight from `byteOffset` on. */
  read(weight: Weight, target: Uint8Array, byteOffset: number): Promise<void>;
  /** Before a batch: throws if a file has changed. */
  check(): void;
  close(): void;
}

/** A part of a weight in an open file. */
interface OpenPart {
  readonly file: DirectFile;
  readonly offset: number;
}

export function streamFiles(files: WeightFiles | undefined): StreamSource {
  const open = new Map<number, DirectFile>();
  const places = new Map<string, { readonly parts: readonly OpenPart[]; readonly bytes: number }>();
  const opened = ({ descriptor, offset }: FilePart): OpenPart => {
    const file = open.get(descriptor) ?? files!.openDirect!(descriptor, true);
    open.set(descriptor, file);
    return { file, offset };
  };
  return {
    open(weights) {
      for (const weight of weights) {
        const parts = files?.openDirect && weightParts(weight, files.partsOf);
        if (!parts) {
          throw new ModelError(`${weight.name} is not in a local file as the GPU reads it`);
        }
        const bytes = bytesFor(weight.dtype, weightElements(weight)) / parts.length;
        places.set(weight.name, { parts: parts.map(opened), bytes });
      }
    },
    async read(weight, target, byteOffset) {
      const { parts, bytes } = places.get(weight.name)!;
      for (let done = 0; done < target.length; ) {
        const at = byteOffset + done;
        const { file, offset } = parts[Math.floor(at / bytes)]!;
        const inside = at % bytes;
        const piece = target.subarray(done, done + Math.min(target.length - done, bytes - inside));
        const count = await file.read(piece, offset + inside);
        if (count === 0) {
          throw new SourceError(
            `the model's file ends before byte ${offset + inside} (${weight.name}): it was written to since it was opened. Open the model again`,
          );
        }
        done += count;
      }
    },
    check() {
      for (const file of open.values()) {
        const changed = file.changed();
        if (changed === undefined) continue;
        throw new SourceError(
          `the model's file has changed (${changed}), and prompts are computed from it. Open the model again, or with \`opOffload: false\``,
        );
      }
    },
    close() {
      for (const file of open.values()) file.close();
      open.clear();
    },
  };
}
