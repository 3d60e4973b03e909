// Kernels that are built at the first read of their body. Until then a kernel is its name and its width, which is all that
// programs need, and the key of code kept from an earlier run (backends/cpu/native/kept-code.ts).

import type { Kernel } from "./kernel.ts";

/** Takes the bytes of a vector register and, if the register tile depends on it, the number of registers. */
export type KernelMaker = (width: number, registers?: number) => Kernel;

/**
 * `make` is called once, or never. Name, width and `registers` must say all that the body depends on, besides the target and
 * the sources.
 */
export function lazyKernel(
  name: string,
  width: number,
  make: () => Kernel,
  registers?: number,
): Kernel {
  let made: Kernel | undefined;
  const built = () => {
    made ??= make();
    if (made.name !== name || made.width !== width) {
      throw new Error(`the kernel ${name} of ${width} bytes became ${made.name} of ${made.width}`);
    }
    return made;
  };
  return {
    name,
    width,
    key: registers === undefined ? `${name} ${width}` : `${name} ${width} of ${registers}`,
    get params() {
      return built().params;
    },
    get body() {
      return built().body;
    },
    get registers() {
      return built().registers;
    },
  };
}

export function lazily(name: string, make: KernelMaker): KernelMaker {
  return (width, registers) => lazyKernel(name, width, () => make(width, registers), registers);
}
