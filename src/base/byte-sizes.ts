// Sizes as people write them: "4G", "512M", "1.5GiB", "800000000".

import { byName } from "./by-name.ts";

/** Powers of 1024, as in llama.cpp and in systems' reports of memory. */
const units: Readonly<Record<string, number>> = byName({
  "": 1,
  k: 2 ** 10,
  m: 2 ** 20,
  g: 2 ** 30,
  t: 2 ** 40,
});

export const byteSizeText = "a number of bytes, or one with K, M, G or T, as in 4G";

/** undefined: it is no size. */
export function byteSizeOf(text: string): number | undefined {
  const [, number, unit] = /^(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?)(?:i?b)?$/i.exec(text.trim()) ?? [];
  if (number === undefined) return undefined;
  const bytes = Math.floor(Number(number) * units[unit!.toLowerCase()]!);
  return Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
}

/** "24.0 MiB", "1.23 GiB", "656.0 KiB": binary units, as memory has. */
export function memoryText(bytes: number): string {
  if (bytes >= 2 ** 30) return `${(bytes / 2 ** 30).toFixed(2)} GiB`;
  if (bytes >= 2 ** 20) return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
  return bytes >= 2 ** 10 || bytes === 0 ? `${(bytes / 2 ** 10).toFixed(1)} KiB` : `${bytes} bytes`;
}

/** "322.6 MB": decimal units, as disks and networks count. */
export function bytesText(bytes: number): string {
  const names = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 999.95 && unit < names.length - 1) {
    value /= 1000;
    unit++;
  }
  return unit === 0 ? `${value} B` : `${value.toFixed(1)} ${names[unit]}`;
}
