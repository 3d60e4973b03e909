// The host names of this server, and checks of addresses: the name in a Host header, and whether a client is on this
// machine. Works on text only; guard.ts uses it.
//
// A page that changes its name's DNS entry to this machine's address (rebinding) looks to a browser like a page of
// this server. The name in the Host header gives it away: only this machine has its own names, and an IP address
// cannot be rebound.

/** "Localhost.:8080" -> "localhost", "[::1]:8080" -> "[::1]"; undefined if it is not a host. */
export function hostNameOf(host: string): string | undefined {
  const name = /^(\[[\da-f:.]+\]|[\w-]+(?:\.[\w-]+)*\.?)(?::\d{0,5})?$/i.exec(host)?.[1];
  if (name === undefined) return undefined;
  if (name.startsWith("[")) return URL.canParse(`http://${name}`) ? name.toLowerCase() : undefined;
  return name.toLowerCase().replace(/\.$/, "");
}

/** The port in a client's Host header: "8080", or "" for the default one. */
export function portOf(host: string): string {
  return /:(\d+)$/.exec(host)?.[1] ?? "";
}

/** Whether a name from hostNameOf is an IP address: those cannot be rebound. */
export function isAddress(name: string): boolean {
  if (name.startsWith("[")) return true;
  const parts = name.split(".");
  return parts.length === 4 && parts.every((part) => /^\d{1,3}$/.test(part) && Number(part) < 256);
}

/** The UNIX socket that a --host names, as llama-server's does: "unix:/run/lantern.sock" or "./lantern.sock"; undefined: it is an address. */
export function socketFileOf(host: string): string | undefined {
  if (host.startsWith("unix:")) return host.slice("unix:".length).replace(/^\/\/(?=\/)/, "");
  return /\.sock$/.test(host) ? host : undefined;
}

/** "build.example.org" -> that and "build": a machine's own name with and without its domain. */
export function machineNames(name: string): string[] {
  const full = hostNameOf(name);
  return full === undefined || isAddress(full) ? [] : [...new Set([full, full.split(".")[0]!])];
}

/** Whether an address is a loopback address. */
export function isLoopback(address: string): boolean {
  const plain = withoutMapping(address);
  return plain === "localhost" || plain === "::1" || /^127\.\d+\.\d+\.\d+$/.test(plain);
}

/** Whether a server with this host is for programs on its machine only. */
export const isLocalHost = (host: string): boolean =>
  isLoopback(host) || socketFileOf(host) !== undefined;

/**
 * Identifies a client by its address. Parts of the address that one client can choose are ignored: on this machine all
 * of 127.0.0.0/8, with IPv6 the last 64 bits.
 */
export function clientOf(address: string): string {
  if (isLoopback(address)) return "loopback";
  const plain = withoutMapping(address);
  if (!plain.includes(":")) return plain;
  const [front, back] = plain.split("%", 1)[0]!.split("::", 2) as [string, string | undefined];
  const [first, last] = [front, back ?? ""].map((text) => text.split(":").filter(Boolean));
  const zeros = back === undefined ? 0 : Math.max(0, 8 - first!.length - last!.length);
  return [...first!, ...Array<string>(zeros).fill("0"), ...last!].slice(0, 4).join(":");
}

/** "::ffff:127.0.0.1" -> "127.0.0.1": the form of an IPv4 address on a dual-stack socket. */
function withoutMapping(address: string): string {
  return address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "");
}
