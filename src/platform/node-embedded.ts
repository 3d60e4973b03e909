// What the single-file program (scripts/build-sea.ts) has inside it: the web app, the threads' code, package.json. Everywhere
// else there is nothing embedded, and files are read.

interface SeaModule {
  isSea(): boolean;
  getAssetKeys(): string[];
  getRawAsset(key: string): ArrayBuffer;
}

/** What is inside, by name. */
export interface EmbeddedFiles {
  names(): string[];
  bytes(name: string): Uint8Array<ArrayBuffer>;
  text(name: string): string;
}

/** undefined: this is no single-file program. */
export function embeddedFiles(): EmbeddedFiles | undefined {
  const sea = process.getBuiltinModule?.("node:sea") as SeaModule | undefined;
  if (!sea?.isSea()) return undefined;
  // The program's own memory, which must not be written to: copied.
  const bytes = (name: string) => new Uint8Array(sea.getRawAsset(name).slice(0));
  return {
    names: () => sea.getAssetKeys(),
    bytes,
    text: (name) => new TextDecoder().decode(bytes(name)),
  };
}
