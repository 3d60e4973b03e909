// Machine code as an ELF64 shared object: the parts that a dynamic linker (glibc's or musl's) needs to map it and to find its
// functions by name, and nothing else. Bytes only: src/platform writes the file and loads it.
//
// Three segments, none of them writable and executable: headers and symbols (read), code with its constants (read,
// execute), and the dynamic section (read, write: glibc before 2.35 puts addresses into it). Code is position-independent,
// so there are no relocations. Section headers are only there for objdump and debuggers.

import type { NativeFunction } from "./native-function.ts";

export type ElfMachine = "x64" | "arm64";

/** e_machine, and the largest page that a system for this machine may have. */
const machines: Readonly<Record<ElfMachine, { id: number; page: number }>> = {
  x64: { id: 62, page: 4096 },
  arm64: { id: 183, page: 65536 },
};

const EHDR = 64;
const PHDR = 56;
const SHDR = 64;
const SYM = 24;
const DYN = 16;
/** Functions begin at cache lines. */
const CODE_ALIGNMENT = 64;

const PT = { load: 1, dynamic: 2, gnuStack: 0x6474e551 } as const;
const PF = { execute: 1, write: 2, read: 4 } as const;
const SHT = { progbits: 1, strtab: 3, hash: 5, dynamic: 6, dynsym: 11 } as const;
const SHF = { write: 1, alloc: 2, execute: 4 } as const;
const DT = { end: 0, hash: 4, strtab: 5, symtab: 6, strsz: 10, syment: 11 } as const;
const DYNAMIC_ENTRIES = 6;
const SEGMENTS = 5;
/** STB_GLOBAL, STT_FUNC. */
const GLOBAL_FUNCTION = 0x12;
/** The index of .text in the list of sections. */
const TEXT_SECTION = 4;

/** The symbol of a kernel: a C identifier. */
export function symbolOf(kernel: string): string {
  return `lantern_${kernel.replaceAll(/[^A-Za-z0-9_]/g, "_")}`;
}

/** A piece of the file that is mapped at the address equal to its offset. */
interface Piece {
  readonly at: number;
  readonly size: number;
}

interface Section extends Piece {
  readonly name: string;
  readonly type: number;
  readonly flags: number;
  readonly link: number;
  readonly entrySize: number;
  readonly alignment: number;
}

interface Segment extends Piece {
  readonly type: number;
  readonly flags: number;
  readonly alignment: number;
}

/** A shared object with these functions, as symbolOf() names them. The same functions give the same bytes. */
export function sharedObject(
  functions: readonly NativeFunction[],
  machine: ElfMachine,
): Uint8Array<ArrayBuffer> {
  const { id, page } = machines[machine];
  const symbols = functions.map(({ name }) => symbolOf(name));
  checkUnique(symbols);
  const names = stringTable(symbols);
  const hash = hashTable(symbols);

  // Offsets in the file, which are addresses, too.
  const hashed: Piece = { at: EHDR + SEGMENTS * PHDR, size: hash.length * 4 };
  const dynsym: Piece = { at: align(end(hashed), 8), size: (symbols.length + 1) * SYM };
  const dynstr: Piece = { at: end(dynsym), size: names.bytes.length };
  const { text, codeAt } = placeCode(functions, align(end(dynstr), page));
  const dynamic: Piece = { at: align(end(text), page), size: DYNAMIC_ENTRIES * DYN };

  const sections = [
    section(".hash", SHT.hash, SHF.alloc, hashed, { link: 2, entrySize: 4 }),
    section(".dynsym", SHT.dynsym, SHF.alloc, dynsym, { link: 3, entrySize: SYM }),
    section(".dynstr", SHT.strtab, SHF.alloc, dynstr, { alignment: 1 }),
    section(".text", SHT.progbits, SHF.alloc | SHF.execute, text, { alignment: CODE_ALIGNMENT }),
    section(".dynamic", SHT.dynamic, SHF.alloc | SHF.write, dynamic, { link: 3, entrySize: DYN }),
  ];
  const sectionNames = stringTable([...sections.map(({ name }) => name), ".shstrtab"]);
  const shstrtab: Piece = { at: end(dynamic), size: sectionNames.bytes.length };
  sections.push(section(".shstrtab", SHT.strtab, 0, shstrtab, { alignment: 1 }));
  const headersAt = align(end(shstrtab), 8);

  const file = new Uint8Array(headersAt + (sections.length + 1) * SHDR);
  const view = new DataView(file.buffer);
  writeFileHeader(view, id, headersAt, sections.length + 1);
  const segments: Segment[] = [
    { type: PT.load, flags: PF.read, at: 0, size: end(dynstr), alignment: page },
    { type: PT.load, flags: PF.read | PF.execute, ...text, alignment: page },
    { type: PT.load, flags: PF.read | PF.write, ...dynamic, alignment: page },
    { type: PT.dynamic, flags: PF.read | PF.write, ...dynamic, alignment: 8 },
    // Without this one, old systems take the code to want an executable stack.
    { type: PT.gnuStack, flags: PF.read | PF.write, at: 0, size: 0, alignment: 16 },
  ];
  segments.forEach((segment, i) => {
    writeSegment(view, EHDR + i * PHDR, segment);
  });
  hash.forEach((word, i) => {
    view.setUint32(hashed.at + 4 * i, word, true);
  });
  functions.forEach(({ bytes }, i) => {
    file.set(bytes, codeAt[i]!);
    const symbol = { name: names.at[i]!, value: codeAt[i]!, size: bytes.length };
    writeSymbol(view, dynsym.at + (i + 1) * SYM, symbol);
  });
  file.set(names.bytes, dynstr.at);
  writeDynamic(view, dynamic.at, { hashed, dynsym, dynstr });
  file.set(sectionNames.bytes, shstrtab.at);
  sections.forEach((entry, i) => {
    writeSection(view, headersAt + (i + 1) * SHDR, sectionNames.at[i]!, entry);
  });
  return file;
}

/** Places functions one after the other from this offset on. */
function placeCode(
  functions: readonly NativeFunction[],
  from: number,
): { text: Piece; codeAt: number[] } {
  const codeAt: number[] = [];
  let codeEnd = from;
  for (const { bytes } of functions) {
    const at = align(codeEnd, CODE_ALIGNMENT);
    codeAt.push(at);
    codeEnd = at + bytes.length;
  }
  return { text: { at: from, size: codeEnd - from }, codeAt };
}

function checkUnique(symbols: readonly string[]): void {
  const twice = symbols.find((symbol, i) => symbols.indexOf(symbol) !== i);
  if (twice !== undefined) throw new Error(`elf: two functions are called ${twice}`);
}

function align(value: number, to: number): number {
  return Math.ceil(value / to) * to;
}

function end({ at, size }: Piece): number {
  return at + size;
}

function section(
  name: string,
  type: number,
  flags: number,
  piece: Piece,
  { link = 0, entrySize = 0, alignment = 8 },
): Section {
  return { name, type, flags, ...piece, link, entrySize, alignment };
}

/** A string table: the empty string, then these, each ended by a zero; and where each begins. */
function stringTable(strings: readonly string[]): { bytes: Uint8Array; at: number[] } {
  const at: number[] = [];
  let length = 1;
  for (const text of strings) {
    at.push(length);
    length += text.length + 1;
  }
  return {
    bytes: new TextEncoder().encode(`\0${strings.map((text) => `${text}\0`).join("")}`),
    at,
  };
}

/** The words of a System V hash table: counts, the first symbol of each bucket, the next one after each symbol. */
function hashTable(symbols: readonly string[]): number[] {
  const buckets = Array<number>(Math.max(1, symbols.length)).fill(0);
  const chains = Array<number>(symbols.length + 1).fill(0);
  symbols.forEach((symbol, i) => {
    const bucket = elfHash(symbol) % buckets.length;
    chains[i + 1] = buckets[bucket]!;
    buckets[bucket] = i + 1;
  });
  return [buckets.length, chains.length, ...buckets, ...chains];
}

/** The hash function of the System V ABI. */
export function elfHash(name: string): number {
  let hash = 0;
  for (let i = 0; i < name.length; i++) {
    hash = ((hash << 4) >>> 0) + name.charCodeAt(i);
    const high = (hash & 0xf0000000) >>> 0;
    hash = ((hash ^ (high >>> 24)) & ~high) >>> 0;
  }
  return hash;
}

function writeFileHeader(view: DataView, machine: number, sections: number, count: number): void {
  const magic = [0x7f, 0x45, 0x4c, 0x46];
  const [class64, littleEndian, version] = [2, 1, 1];
  [...magic, class64, littleEndian, version].forEach((byte, i) => {
    view.setUint8(i, byte);
  });
  view.setUint16(16, 3, true); // e_type: ET_DYN
  view.setUint16(18, machine, true);
  view.setUint32(20, version, true);
  writeWord(view, 32, EHDR); // e_phoff
  writeWord(view, 40, sections); // e_shoff
  view.setUint16(52, EHDR, true);
  view.setUint16(54, PHDR, true);
  view.setUint16(56, SEGMENTS, true);
  view.setUint16(58, SHDR, true);
  view.setUint16(60, count, true);
  view.setUint16(62, count - 1, true); // e_shstrndx: the last
}

function writeSegment(view: DataView, to: number, segment: Segment): void {
  const { type, flags, at, size, alignment } = segment;
  view.setUint32(to, type, true);
  view.setUint32(to + 4, flags, true);
  // p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align
  [at, at, at, size, size, alignment].forEach((value, i) => {
    writeWord(view, to + 8 + 8 * i, value);
  });
}

function writeSymbol(
  view: DataView,
  to: number,
  { name, value, size }: { name: number; value: number; size: number },
): void {
  view.setUint32(to, name, true);
  view.setUint8(to + 4, GLOBAL_FUNCTION);
  view.setUint16(to + 6, TEXT_SECTION, true);
  writeWord(view, to + 8, value);
  writeWord(view, to + 16, size);
}

function writeDynamic(
  view: DataView,
  to: number,
  { hashed, dynsym, dynstr }: Readonly<Record<"hashed" | "dynsym" | "dynstr", Piece>>,
): void {
  const entries = [
    [DT.hash, hashed.at],
    [DT.strtab, dynstr.at],
    [DT.symtab, dynsym.at],
    [DT.strsz, dynstr.size],
    [DT.syment, SYM],
    [DT.end, 0],
  ] as const;
  entries.forEach(([tag, value], i) => {
    writeWord(view, to + i * DYN, tag);
    writeWord(view, to + i * DYN + 8, value);
  });
}

function writeSection(view: DataView, to: number, name: number, entry: Section): void {
  const { type, flags, at, size, link, entrySize, alignment } = entry;
  const isMapped = (flags & SHF.alloc) !== 0;
  view.setUint32(to, name, true);
  view.setUint32(to + 4, type, true);
  // sh_flags, sh_addr, sh_offset, sh_size
  [flags, isMapped ? at : 0, at, size].forEach((value, i) => {
    writeWord(view, to + 8 + 8 * i, value);
  });
  view.setUint32(to + 40, link, true);
  view.setUint32(to + 44, type === SHT.dynsym ? 1 : 0, true); // sh_info: the first global symbol
  writeWord(view, to + 48, alignment);
  writeWord(view, to + 56, entrySize);
}

/** Writes 64 bits of a number below 2^32. */
function writeWord(view: DataView, to: number, value: number): void {
  view.setUint32(to, value, true);
}
