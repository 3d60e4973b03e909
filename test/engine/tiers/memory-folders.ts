// Folders of stored state in memory, which can be full, damaged, or lost in the middle of a write: what a disk does, at will.

import type { BlockFolder, BlockFolders, BlockWriter } from "../../../src/platform/block-files.ts";

export class MemoryFolders implements BlockFolders {
  readonly path: string = "memory";
  readonly files: Map<string, { bytes: Uint8Array; usedAt: number }> = new Map();
  /** Bytes that may still be written before the disk is full. */
  room: number = Number.POSITIVE_INFINITY;
  free: number | undefined;
  #clock = 0;

  async names(): Promise<string[]> {
    return [...new Set([...this.files.keys()].map((name) => name.split("/")[0]!))];
  }

  async remove(name: string): Promise<void> {
    for (const file of this.files.keys()) if (file.startsWith(`${name}/`)) this.files.delete(file);
  }

  async freeBytes(): Promise<number | undefined> {
    return this.free;
  }

  async folder(name: string): Promise<BlockFolder> {
    const { files } = this;
    const at = (file: string) => `${name}/${file}`;
    const open = (file: string): BlockWriter => {
      const held = files.get(at(file))!; // as a descriptor: it lives on when the file is removed
      return {
        read: async (offset, target) => {
          const part = held.bytes.subarray(offset, offset + target.length);
          target.set(part);
          return part.length;
        },
        write: async (offset, ...pieces) => {
          const bytes = Buffer.concat(pieces);
          const taken = Math.min(bytes.length, this.room);
          const grown = new Uint8Array(Math.max(held.bytes.length, offset + taken));
          grown.set(held.bytes);
          grown.set(bytes.subarray(0, taken), offset);
          held.bytes = grown;
          held.usedAt = ++this.#clock;
          this.room -= taken;
          if (taken < bytes.length) throw new Error("no space left on the disk");
        },
        truncate: async (size) => {
          held.bytes = held.bytes.slice(0, size);
        },
        close: async () => undefined,
      };
    };
    return {
      path: `memory/${name}`,
      list: async () =>
        [...files].flatMap(([file, { bytes, usedAt }]) =>
          file.startsWith(`${name}/`)
            ? [{ name: file.slice(name.length + 1), bytes: bytes.length, usedAt }]
            : [],
        ),
      create: async (file) => {
        if (files.has(at(file))) throw new Error("it exists");
        files.set(at(file), { bytes: new Uint8Array(), usedAt: ++this.#clock });
        return open(file);
      },
      open: async (file) => (files.has(at(file)) ? open(file) : undefined),
      change: async (file) => (files.has(at(file)) ? open(file) : undefined),
      touch: async (file) => {
        const held = files.get(at(file));
        if (held) held.usedAt = ++this.#clock;
      },
      remove: async (file) => {
        files.delete(at(file));
      },
    };
  }
}
