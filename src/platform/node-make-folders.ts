// Makes a folder and those above it. Node's own `recursive` never returns where the system denies that a folder can be made and
// says that the one above is there (/proc/x): it goes up and down for ever.

import * as fs from "node:fs";
import * as path from "node:path";

export function makeFolders(folder: string, mode?: number): void {
  if (fs.existsSync(folder)) {
    if (!fs.statSync(folder).isDirectory()) fs.mkdirSync(folder); // throws, and says what is there
    return;
  }
  if (path.dirname(folder) !== folder) makeFolders(path.dirname(folder), mode);
  try {
    fs.mkdirSync(folder, mode);
  } catch (error) {
    const isThere = (error as NodeJS.ErrnoException).code === "EEXIST";
    if (!isThere || !fs.statSync(folder, { throwIfNoEntry: false })?.isDirectory()) throw error;
  }
}
