// A disk of one size that a test can fill and make read-only: a tmpfs, which only root can mount.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

export interface SmallDisk {
  readonly folder: string;
  /** Leaves no room. */
  fill(): void;
  /** Removes what fill() wrote. */
  free(): void;
  readOnly(is: boolean): void;
}

const mount = (...args: string[]): boolean => spawnSync("mount", args).status === 0;

/** undefined: this user cannot mount anything, or this system has no tmpfs. */
export function smallDisk(megabytes: number = 4): SmallDisk | undefined {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "lantern-disk-"));
  if (!mount("-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", folder)) {
    rmSync(folder, { recursive: true });
    return undefined;
  }
  onTestFinished(() => {
    spawnSync("umount", ["-l", folder]);
    rmSync(folder, { recursive: true, force: true });
  });
  const filler = join(folder, "filler");
  return {
    folder,
    fill: () => {
      const { bavail, bsize } = statfsSync(folder);
      writeFileSync(filler, Buffer.alloc(bavail * bsize), { flag: "a" });
    },
    free: () => rmSync(filler),
    readOnly: (is) => {
      if (!mount("-o", `remount,${is ? "ro" : "rw"}`, folder)) throw new Error("cannot remount");
    },
  };
}

export const noSmallDisk = "only root on Linux can mount a small disk";
