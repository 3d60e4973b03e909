// The names by which this server may be called, and what addresses tell: the name in a Host header, and whether a client is on
// this machine. Text only; the guard asks.
//
// A page that changes its name's DNS entry to this machine's address (rebinding) is, for a browser, a page of this server. What
// gives it away is the name in the Host header: nobody but this machine has its names, and an IP address cannot be rebound.

/** "Localhost.:8080" -> "localhost", "[::1]:8080" -> "[::1]"; undefined: no host. */
export function hostNameOf(host: string): string | undefined {
  const name = /^(\[[\da-f:.]+\]|[\w-]+(?:\.[\w-]+)*\.?)(?::\d{0,5})?$/i.exec(host)?.[1];
  if (name === undefined) return undefined;
  if (name.startsWith("[")) return URL.canParse(`http://${name}`) ? name.toLowerCase() : undefined;
  return name.toLowerCase().replace(/\.$/, "");
}

/** The port that a client used, as its Host header has it: "8080", "" where it is the usual one. */
export function portOf(host: string): string {
  return /:(\d+)$/.exec(host)?.[1] ?? "";
}

/** Whether a name out of hostNameOf is an address: those cannot be rebound. */
export function isAddress(name: string): boolean {
  if (name.startsWith("[")) return true;
  const parts = name.split(".");
  return parts.length === 4 && parts.every((part) => /^\d{1,3}$/.test(part) && Number(part) < 256);
}

/** "build.example.org" -> that and "build": a machine's own name, with and without its domain. */
export function machineNames(name: string): string[] {
  const full = hostNameOf(name);
  return full === undefined || isAddress(full) ? [] : [...new Set([full, full.split(".")[0]!])];
}

/** Whether a client's address, or one to listen on, is this machine's alone. */
export function isLoopback(address: string): boolean {
  const plain = withoutMapping(address);
  return plain === "localhost" || plain === "::1" || /^127\.\d+\.\d+\.\d+$/.test(plain);
}

/**
 * Who a client is, where its address is all that is known. What one client can choose of its address does not make it two:
 * on this machine any of 127.0.0.0/8, with IPv6 any of the last 64 bits.
 */
export function clientOf(address: string): string {
  if (isLoopback(address)) return "loopback";
  const plain = withoutMapping(address);
  if (!plain.includes(":")) return plain;
  const [front, back] = plain.replace(/%.*$/, "").split("::", 2) as [string, string | undefined];
  const [first, last] = [front, back ?? ""].map((text) => text.split(":").filter(Boolean));
  const zeros = back === undefined ? 0 : Math.max(0, 8 - first!.length - last!.length);
  return [...first!, ...Array<string>(zeros).fill("0"), ...last!].slice(0, 4).join(":");
}

/** "::ffff:127.0.0.1" -> "127.0.0.1": how a socket for both kinds shows an IPv4 address. */
function withoutMapping(address: string): string {
  return address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "");
}
