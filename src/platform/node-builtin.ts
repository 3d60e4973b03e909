// Built-in modules that not every runtime has, and the name of the runtime: Node, or one that is compatible with it.

interface Versions {
  readonly node?: string | undefined;
  readonly bun?: string | undefined;
  readonly deno?: string | undefined;
}

/** The first Node version with everything that Lantern uses. */
const bestNode = 26;

/** "Node.js 22.23.3", "Bun 1.4.4": Bun and Deno also state the Node version that they are compatible with. */
export function runtimeName(versions: Versions = process.versions): string {
  if (versions.bun) return `Bun ${versions.bun}`;
  if (versions.deno) return `Deno ${versions.deno}`;
  return `Node.js ${versions.node}`;
}

/** Why there is no node:ffi, and which runtime has it. */
export function whyNoFfi(versions: Versions = process.versions): string {
  const isBest =
    !versions.bun && !versions.deno && Number.parseInt(versions.node ?? "", 10) >= bestNode;
  return isBest
    ? "this Node has no node:ffi, or was started with --no-experimental-ffi"
    : `${runtimeName(versions)} has no node:ffi; Node.js ${bestNode} would run machine code made for this processor, which is faster`;
}

/** Importing it takes as long as all else that a thread imports of Node, and few threads need it. */
export const nodeCrypto = (): typeof import("node:crypto") =>
  process.getBuiltinModule("node:crypto");

/**
 * A built-in module; undefined if this runtime does not have it. Node warns that some modules are experimental when
 * they are loaded. Users did not choose these modules, so a warning that starts with `hushed` is suppressed.
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
