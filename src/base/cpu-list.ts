// Sets of CPUs as Linux and llama.cpp write them: lists ("0-3,8"), ranges ("4-7") and hexadecimal masks ("0xff").
// They become ascending arrays of CPU numbers.

/** No machine has more; a hostile text must not make a huge array. */
const MOST_CPUS = 4096;

/** "0-3,8" as [0, 1, 2, 3, 8]; undefined if it is none. */
export function cpusIn(list: string): number[] | undefined {
  const cpus: number[] = [];
  for (const part of list.split(",")) {
    const [, first, last = first] = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(part) ?? [];
    if (first === undefined || Number(last) < Number(first) || Number(last) >= MOST_CPUS) {
      return undefined;
    }
    for (let cpu = Number(first); cpu <= Number(last); cpu++) cpus.push(cpu);
  }
  return cpus;
}

/** "0x5" as [0, 2]: bit n is CPU n; undefined if it is no mask, or an empty one. */
export function cpusOfMask(mask: string): number[] | undefined {
  const [, digits] = /^(?:0x)?([0-9a-f]+)$/i.exec(mask) ?? [];
  if (digits === undefined || digits.length * 4 > MOST_CPUS) return undefined;
  const bits = BigInt(`0x${digits}`);
  const cpus: number[] = [];
  for (let cpu = 0; cpu < digits.length * 4; cpu++) {
    if ((bits >> BigInt(cpu)) & 1n) cpus.push(cpu);
  }
  return cpus.length > 0 ? cpus : undefined;
}

/** [0, 1, 2, 3, 8] as "0-3,8". */
export function cpuListText(cpus: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < cpus.length; ) {
    let last = i;
    while (cpus[last + 1] === cpus[last]! + 1) last++;
    parts.push(last > i ? `${cpus[i]}-${cpus[last]}` : `${cpus[i]}`);
    i = last + 1;
  }
  return parts.join(",");
}
