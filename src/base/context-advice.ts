// Advice for a text that does not fit the context: a larger context, only if the model was trained for one. Every message about a full
// context uses it; the caller names the setting (an option, a flag, a button).

/** The part of ModelInfo that the advice depends on. */
export interface ContextCapacity {
  readonly contextSize: number;
  readonly trainedContext: number;
}

/** "Shorten it, or <use a larger contextSize> (trained for 2048)" */
export function contextAdvice(
  room: ContextCapacity,
  larger: string = "use a larger contextSize",
): string {
  return canBeLarger(room)
    ? `Shorten it, or ${larger} (trained for ${room.trainedContext})`
    : `Shorten it: ${trainedFor(room)}`;
}

export function canBeLarger({ contextSize, trainedContext }: ContextCapacity): boolean {
  return contextSize < trainedContext;
}

export function trainedFor({ trainedContext }: ContextCapacity): string {
  return `this model was trained for ${trainedContext} tokens`;
}
