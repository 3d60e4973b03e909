// Tables that are asked with names from outside: from a file, a request, a flag. An ordinary object has "constructor" and
// "toString" as well, which are no entries; these have just what is written in them.

export function byName<T>(entries: Readonly<Record<string, T>>): Readonly<Record<string, T>> {
  return Object.freeze(Object.assign(Object.create(null) as Record<string, T>, entries));
}
