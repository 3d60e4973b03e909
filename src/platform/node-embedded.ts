// The files embedded in the single-file program (scripts/build-sea.ts): the web app, the threads' code, package.json.
// Any other installation has none, and reads files instead.

interface SeaModule {
  isSea(): boolean;
  getAssetKeys(): string[];
  getRawAsset(key: string): ArrayBuffer;
}

/** The embedded files, by name. */
export interface EmbeddedFiles {
  names(): string[];
  bytes(name: string): Uint8Array<ArrayBuffer>;
  text(name: string): string;
}

/** undefined if this is not a single-file program. */
export function embeddedFiles(): EmbeddedFiles | undefined {
  const sea = process.getBuiltinModule?.("node:sea") as SeaModule | undefined;
  if (!sea?.isSea()) return undefined;
  // The asset is the program's own memory, which must not be written to: copy it.
  const bytes = (name: string) => new Uint8Array(sea.getRawAsset(name).slice(0));
  return {
    names: () => sea.getAssetKeys(),
    bytes,
    text: (name) => new TextDecoder().decode(bytes(name)),
  };
}
