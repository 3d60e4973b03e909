// Which positions of its sequence a token attends to: from attendedFrom() up to, but without, attendedTo(). The one place
// that says what a window is; kernels that compute the same bounds on a device are held against the reference, which asks here.

export interface Attended {
  /** Positions, the token's own included; undefined: all. */
  readonly window: number | undefined;
}

/** With a window of 4, position 9 attends to 6, 7, 8 and 9. */
export function attendedFrom({ window }: Attended, position: number): number {
  return window === undefined ? 0 : Math.max(0, position + 1 - window);
}

export function attendedTo(position: number): number {
  return position + 1;
}
