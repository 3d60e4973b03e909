// Turns system errors about files and folders into messages. All file access in src/platform uses it, so that a user reads the
// failed operation, the path, the reason, and advice.

import { homedir, userInfo } from "node:os";
import { isAbsolute } from "node:path";
import { byName } from "../base/by-name.ts";
import { messageOf, SourceError } from "../base/errors.ts";

/** A file or folder could not be read, written or looked at. */
class PathError extends SourceError {
  override name: string = "PathError";
  /** The system's error code: "EACCES". */
  readonly reason: string;

  constructor(message: string, reason: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

/** The explanation and advice by error code; other codes (EBADF, EINVAL) would be bugs of ours. */
const reasons: Readonly<Record<string, string>> = byName({
  EACCES: "permission denied. Check its rights, and those of the folders above it",
  EPERM: "permission denied. Check who owns it",
  ENOENT: "there is no such file or folder",
  ENOTDIR: "a part of the path is a file, expected a folder",
  EISDIR: "it is a folder, expected a file",
  EEXIST: "something of that name is there already",
  ENOTEMPTY: "the folder is not empty",
  ELOOP: "its symbolic links lead in a circle. Repair the link",
  ENAMETOOLONG: "the name is too long. Choose a shorter one",
  ENOSPC: "the disk is full. Free some space",
  EDQUOT: "the quota of this user is used up. Free some space",
  EFBIG: "files on this disk cannot be that large. Use another disk",
  EROFS: "the disk can only be read. Use another one",
  EMFILE: 'this process has too many files open. Raise the limit ("ulimit -n")',
  ENFILE: "this machine has too many files open. Close other programs",
  EIO: "the disk did not answer (input/output error). Check the disk",
  EBUSY: "another program uses it",
  ETXTBSY: "another program runs it",
  ENODEV: "its disk is not there",
  ENXIO: "its disk is not there",
  ESTALE: "the network disk has lost it. Try again",
  ETIMEDOUT: "the network disk did not answer. Try again",
  EXDEV: "it would have to be moved to another disk",
});

/** Why the system refused, in words; undefined if it is not a system error about a path. */
function pathReason(error: unknown): string | undefined {
  const { code } = error as { code?: unknown };
  return error instanceof Error && typeof code === "string" && Object.hasOwn(reasons, code)
    ? reasons[code]
    : undefined;
}

/** For the end of a sentence: why the system refused, or else the error's message. */
export function pathReasonOf(error: unknown): string {
  return pathReason(error) ?? messageOf(error);
}

/** `what`: "file: cannot read". Any other error is returned unchanged: it is a bug of ours. */
export function pathError(what: string, path: string, error: unknown, hint = ""): unknown {
  const reason = pathReason(error);
  if (reason === undefined) return error;
  const home = path.startsWith(noHome)
    ? "this user has no home folder. Set HOME, or LANTERN_CACHE and LANTERN_DATA to folders that can be written"
    : undefined;
  const message = `${what} "${path}": ${home ?? `${reason}${hint && `. ${hint}`}`}`;
  return new PathError(message, (error as NodeJS.ErrnoException).code!, { cause: error });
}

/** The same for a promise. */
export async function orPathError<T>(
  what: string,
  path: string,
  work: Promise<T>,
  hint?: string,
): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw pathError(what, path, error, hint);
  }
}

/** Explains an unexpected system error; undefined if it is not one. */
export function unexpectedPathError(error: unknown): PathError | undefined {
  const { syscall, path = "", code = "" } = (error ?? {}) as NodeJS.ErrnoException;
  const reason = pathReason(error);
  if (reason === undefined || typeof syscall !== "string") return undefined;
  return new PathError(`file: cannot ${syscall} "${path}": ${reason}`, code, { cause: error });
}

/** No file exists below this path, and none can be created there, not even by root. */
const noHome = "/dev/null/no-home-folder";

/** The user's home folder; without one, a path at which no file exists or can be created. */
export function homeFolder(): string {
  for (const find of [homedir, () => userInfo().homedir]) {
    try {
      const folder = find(); // throws if the system does not know this user; "" if HOME is empty
      if (isAbsolute(folder)) return folder;
    } catch {
      // try the next one
    }
  }
  return noHome;
}
