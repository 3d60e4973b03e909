// Checks that every byte source makes before it touches a file, a socket or memory.
//
// File names reach a ModelSource from model files (a safetensors index, split names), which are untrusted: a name must
// never lead out of the folder or origin that the user named.

import { DisposedError, SourceError } from "../../base/errors.ts";

/** Returns a plain file name unchanged; a path, ".." or an empty name is a SourceError. */
export function checkPlainName(file: string, of: string): string {
  if (file === "" || file === "." || file === ".." || /[/\\\0]/.test(file)) {
    throw new SourceError(
      `${of}: file name ${JSON.stringify(file)} is not a plain name; expected one without "/", "\\" or ".." in the same folder`,
    );
  }
  return file;
}

/** A range outside the file, or with fractions, is a SourceError. */
export function checkRange(name: string, size: number, offset: number, length: number): void {
  const whole = Number.isSafeInteger(offset) && Number.isSafeInteger(length);
  if (whole && offset >= 0 && length >= 0 && offset <= size - length) return;
  throw new SourceError(
    `${name}: cannot read ${length} bytes at offset ${offset}: the file has ${size} bytes`,
  );
}

export function checkOpen(name: string, closed: boolean): void {
  if (closed) throw new DisposedError(`${name} (closed file)`);
}
