// Machine code that an earlier run made, in one file for each target. Making the kernels of a model takes longer than all else of
// the start of a small one. The code of a kernel depends on its key, the target and the sources: a file of other sources counts for
// nothing, and the next one replaces it.
//
// The platform checks who could have written the file, and that it is whole (KeptFiles).
//
//   uint32 bytes of the index; the index as JSON; the code of each kernel, one after the other

import type { NativeFunction } from "../../../kernels/asm/native-function.ts";
import type { KeptFiles } from "../../../platform/platform.ts";

/** Code, or the sentence that says why there is none. */
type Made = NativeFunction | string;

interface Index {
  readonly sources: string;
  /** [key, name, bytes of code], or [key, why there is none]. */
  readonly kernels: readonly (readonly [string, string, number] | readonly [string, string])[];
}

const LENGTH_BYTES = 4;
/** With more than that, only the code that the present run used is kept. */
const MOST_BYTES = 4 << 20;

export class KeptCode {
  readonly #files: KeptFiles;
  readonly #file: string;
  readonly #used = new Map<string, Made>();
  #kept: ReadonlyMap<string, Made> | undefined;
  #isChanged = false;

  constructor(files: KeptFiles, target: string) {
    this.#files = files;
    this.#file = `kernels-${target}.bin`;
  }

  /** The kept code, or else the result of `make`, which save() keeps. */
  of(key: string, make: () => Made): Made {
    this.#kept ??= this.#read();
    const known = this.#used.get(key) ?? this.#kept.get(key);
    const made = known ?? make();
    if (known === undefined) this.#isChanged = true;
    this.#used.set(key, made);
    return made;
  }

  save(): void {
    if (!this.#isChanged) return;
    this.#isChanged = false;
    // Other threads and processes keep theirs in the same file.
    const all = new Map([...this.#read(), ...this.#used]);
    this.#files.write(
      this.#file,
      written(this.#files.sources, bytesIn(all) > MOST_BYTES ? this.#used : all),
    );
  }

  #read(): ReadonlyMap<string, Made> {
    const content = this.#files.read(this.#file);
    return content ? read(content, this.#files.sources) : new Map();
  }
}

function bytesIn(kernels: ReadonlyMap<string, Made>): number {
  let bytes = 0;
  for (const [key, made] of kernels) {
    bytes += key.length + (typeof made === "string" ? made.length : made.bytes.length);
  }
  return bytes;
}

function written(sources: string, kernels: ReadonlyMap<string, Made>): Uint8Array<ArrayBuffer> {
  const index: Index = {
    sources,
    kernels: [...kernels].map(([key, made]) =>
      typeof made === "string" ? [key, made] : [key, made.name, made.bytes.length],
    ),
  };
  const text = new TextEncoder().encode(JSON.stringify(index));
  const codes = [...kernels.values()].flatMap((made) => (typeof made === "string" ? [] : [made]));
  const codeBytes = codes.reduce((sum, { bytes }) => sum + bytes.length, 0);
  const content = new Uint8Array(LENGTH_BYTES + text.length + codeBytes);
  new DataView(content.buffer).setUint32(0, text.length, true);
  content.set(text, LENGTH_BYTES);
  let at = LENGTH_BYTES + text.length;
  for (const { bytes } of codes) {
    content.set(bytes, at);
    at += bytes.length;
  }
  return content;
}

function read(content: Uint8Array<ArrayBuffer>, sources: string): Map<string, Made> {
  const { buffer, byteOffset } = content;
  const length = new DataView(buffer, byteOffset).getUint32(0, true);
  const text = new TextDecoder().decode(content.subarray(LENGTH_BYTES, LENGTH_BYTES + length));
  const index = JSON.parse(text) as Index;
  if (index.sources !== sources) return new Map();
  let at = LENGTH_BYTES + length;
  return new Map(
    index.kernels.map(([key, name, bytes]): [string, Made] => {
      if (bytes === undefined) return [key, name];
      const code = content.subarray(at, at + bytes);
      at += bytes;
      return [key, { name, bytes: code }];
    }),
  );
}
