// Stored state in a browser: files in the origin private file system (OPFS), which only this site's pages can read. The format is that
// of Node's files. A file that a worker appends to is locked for others, except for reading, and is released when its page ends.

import { messageOf, SourceError } from "../base/errors.ts";
import type {
  BlockFileFacts,
  BlockFolder,
  BlockFolders,
  BlockReader,
  BlockWriter,
} from "./block-files.ts";

/** A worker's access to a file: not in TypeScript's library for pages. */
interface SyncAccess {
  read(target: Uint8Array, options: { at: number }): number;
  write(bytes: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

type WorkerFile = FileSystemFileHandle & { createSyncAccessHandle?(): Promise<SyncAccess> };
type Listed = FileSystemDirectoryHandle & {
  values(): AsyncIterable<FileSystemDirectoryHandle | WorkerFile>;
};

/** `folder`: default: "state". */
export function browserBlockFolders(folder = "state"): BlockFolders {
  const root = async (): Promise<Listed> => {
    const { storage } = globalThis.navigator;
    if (!storage?.getDirectory) {
      throw new SourceError(
        "this browser stores no files, or not for this page (it must be served over https or from localhost)",
      );
    }
    return await directory((await storage.getDirectory()) as Listed, `lantern-${folder}`);
  };
  return {
    path: `lantern-${folder} in this site's storage`,
    names: async () => {
      const names: string[] = [];
      const held = await root().catch(() => undefined);
      if (held)
        for await (const { kind, name } of held.values())
          if (kind === "directory") names.push(name);
      return names;
    },
    folder: (name) =>
      inWords(name, async () => opfsFolder(await directory(await root(), name), name)),
    remove: (name) => inWords(name, async () => removed(await root(), name)),
    freeBytes: async () => {
      const { quota, usage } = await globalThis.navigator.storage.estimate();
      return quota === undefined || usage === undefined ? undefined : quota - usage;
    },
  };
}

async function directory(parent: FileSystemDirectoryHandle, name: string): Promise<Listed> {
  return (await parent.getDirectoryHandle(name, { create: true })) as Listed;
}

function opfsFolder(held: Listed, path: string): BlockFolder {
  const fileOf = async (name: string) => (await held.getFileHandle(name)) as WorkerFile;
  return {
    path,
    list: async () => {
      const files: BlockFileFacts[] = [];
      for await (const entry of held.values()) {
        if (entry.kind !== "file") continue;
        const file = await (entry as WorkerFile).getFile().catch(() => undefined); // it is gone
        if (file) files.push({ name: entry.name, bytes: file.size, usedAt: file.lastModified });
      }
      return files;
    },
    create: (name) =>
      inWords(name, async () => {
        if (await fileOf(name).catch(() => undefined)) throw new Error("it exists");
        const file = (await held.getFileHandle(name, { create: true })) as WorkerFile;
        if (!file.createSyncAccessHandle)
          throw new Error("this browser writes no files in workers");
        return writer(await file.createSyncAccessHandle(), name);
      }),
    open: async (name) => {
      const file = await fileOf(name).catch(() => undefined);
      return file && reader(file);
    },
    change: (name) =>
      inWords(name, async () => {
        const file = await fileOf(name).catch(() => undefined);
        if (!file) return undefined;
        if (!file.createSyncAccessHandle)
          throw new Error("this browser writes no files in workers");
        return writer(await file.createSyncAccessHandle(), name);
      }),
    touch: async (name) => {
      // There is no other way to set a file's time: its first byte is written again.
      const access = await fileOf(name)
        .then((file) => file.createSyncAccessHandle?.())
        .catch(() => undefined); // another tab writes to it
      if (!access) return;
      try {
        const first = new Uint8Array(1);
        if (access.read(first, { at: 0 }) === 1) access.write(first, { at: 0 });
      } finally {
        access.close();
      }
    },
    remove: (name) => inWords(name, () => removed(held, name)),
  };
}

/** A file that another page writes to stays. */
async function removed(parent: FileSystemDirectoryHandle, name: string): Promise<void> {
  const kept = ["NotFoundError", "NoModificationAllowedError"];
  await parent.removeEntry(name, { recursive: true }).catch((error: unknown) => {
    if (!kept.includes((error as Error).name)) throw error;
  });
}

function reader(handle: WorkerFile): BlockReader {
  const read = async (offset: number, target: Uint8Array): Promise<number> => {
    // A File is a snapshot of the file, and cannot be read once the file has changed.
    const file = await handle.getFile();
    const bytes = await file.slice(offset, offset + target.length).arrayBuffer();
    target.set(new Uint8Array(bytes));
    return bytes.byteLength;
  };
  return {
    read: (offset, target) => read(offset, target).catch(() => read(offset, target)),
    close: async () => undefined,
  };
}

function writer(access: SyncAccess, name: string): BlockWriter {
  return {
    read: async (offset, target) => access.read(target, { at: offset }),
    write: (offset, ...pieces) =>
      inWords(name, async () => {
        let at = offset;
        for (const bytes of pieces) {
          const written = access.write(bytes, { at });
          if (written < bytes.length) throw new Error("the site's storage is full");
          at += written;
        }
      }),
    truncate: async (size) => access.truncate(size),
    sync: async () => access.flush(),
    close: async () => access.close(),
  };
}

async function inWords<T>(name: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new SourceError(`${name}: ${messageOf(error)}`, { cause: error });
  }
}
