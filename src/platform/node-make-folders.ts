// Makes a folder and its parents. Node's own `recursive` never returns if the system denies that a folder can be made and says that
// its parent is there (/proc/x): it goes up and down for ever.

import * as fs from "node:fs";
import * as path from "node:path";

export function makeFolders(folder: string, mode?: number): void {
  const above = path.dirname(folder);
  if (!fs.existsSync(above)) makeFolders(above, mode);
  try {
    fs.mkdirSync(folder, mode);
  } catch (error) {
    const isThere = (error as NodeJS.ErrnoException).code === "EEXIST";
    if (!isThere || !fs.statSync(folder, { throwIfNoEntry: false })?.isDirectory()) throw error;
  }
}
