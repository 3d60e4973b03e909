// Modules of Node's own that not every runtime has, and what runtime this is: Node, or one that does as Node does.

interface Versions {
  readonly node?: string | undefined;
  readonly bun?: string | undefined;
  readonly deno?: string | undefined;
}

/** The Node that has all that Lantern uses. */
const bestNode = 26;

/** "Node.js 22.23.3", "Bun 1.4.4": bun and deno name a version of Node, too, that they resemble. */
export function runtimeName(versions: Versions = process.versions): string {
  if (versions.bun) return `Bun ${versions.bun}`;
  if (versions.deno) return `Deno ${versions.deno}`;
  return `Node.js ${versions.node}`;
}

/** Why there is no node:ffi, and what would have it. */
export function whyNoFfi(versions: Versions = process.versions): string {
  const isBest =
    !versions.bun && !versions.deno && Number.parseInt(versions.node ?? "", 10) >= bestNode;
  return isBest
    ? "this Node has no node:ffi, or was started with --no-experimental-ffi"
    : `${runtimeName(versions)} has no node:ffi; Node.js ${bestNode} would run machine code made for this processor, which is faster`;
}

/**
 * A built-in module; undefined: this runtime has none of that name. Node says of some that they are experimental whenever
 * they are loaded; users did not choose them, so a warning that begins with `hushed` is left out.
 */
export function quietBuiltin(name: string, hushed: string): unknown {
  const { emitWarning } = process;
  process.emitWarning = ((warning: string | Error, ...rest: never[]) => {
    const type: unknown = rest[0];
    if (type === "ExperimentalWarning" && String(warning).startsWith(hushed)) return;
    emitWarning.call(process, warning, ...rest);
  }) as typeof process.emitWarning;
  try {
    return process.getBuiltinModule?.(name);
  } finally {
    process.emitWarning = emitWarning;
  }
}
