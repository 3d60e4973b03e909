// Lookup tables for names from outside: from a file, a request or a flag. An ordinary object also answers to
// "constructor" and "toString"; these tables have no prototype and hold only their own entries.

export function byName<T>(entries: Readonly<Record<string, T>>): Readonly<Record<string, T>> {
  return Object.freeze(Object.assign(Object.create(null) as Record<string, T>, entries));
}
