// Prints any value for an error message: short, and text on one line. Calls no method of the value, because an object
// from a file or a caller may have a toString that is not a function.

const longest = 80;

export function show(value: unknown, depth: number = 2): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value.length > longest ? `${value.slice(0, longest)}...` : value);
    case "object":
      if (value === null) return "null";
      if (value instanceof Uint8Array) return `bytes ${[...value.subarray(0, 8)].join(" ")}`;
      if (!Array.isArray(value)) return "an object";
      return depth > 0
        ? `[${value
            .slice(0, 8)
            .map((item) => show(item, depth - 1))
            .join(", ")}]`
        : "a list";
    case "function":
      return "a function";
    default:
      return String(value);
  }
}
