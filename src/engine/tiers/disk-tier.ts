// Units of stored state in files, up to a budget. Each process appends to a segment of its own and reads those of all, so several
// processes share a folder without locks. Written units are found again by reading the headers of the records.
//
// Writing delays no token: append() runs in the background. A damaged record is not used, and is reported; a disk that is full or
// cannot be written to stops writing for a minute, and is reported. The least recently used segments are removed when the budget is
// spent, those of other models included. There is no fsync: after a power cut some units are missing, and their checksums show
// which.

import { messageOf } from "../../base/errors.ts";
import type {
  BlockFileFacts,
  BlockFolder,
  BlockFolders,
  BlockReader,
  BlockWriter,
} from "../../platform/block-files.ts";
import type { CacheCounts } from "./cache-counts.ts";
import { eraseOwners } from "./erase.ts";
import { type StateKey, unitId } from "./keys.ts";
import { isPrivate, type Owner } from "./owners.ts";
import {
  type Crc32,
  defaultCrc32,
  isOldSegment,
  ownerRecord,
  RECORD_HEADER_BYTES,
  type RecordFacts,
  readRecordHeader,
  recordHeader,
  SEGMENT_EXTENSION,
  SEGMENT_HEADER_BYTES,
  segmentHeader,
  segmentRefusal,
  type UnitFacts,
} from "./segment.ts";
import { type StateAbout, writeAbout } from "./state-about.ts";

/** budget: its segment was removed to make room; removed: by another process, or by hand. */
export type LostReason = "budget" | "removed" | "damaged";

export interface DiskTierParts {
  readonly folders: BlockFolders;
  readonly root: StateKey;
  readonly budgetBytes: number;
  /** Bytes of a unit of each kind: a record of another size is not used. */
  readonly unitBytes: readonly number[];
  /** Called for every unit that is found or written. */
  onUnit(unit: UnitFacts): void;
  /** Called for every unit that was there and is not any more. */
  onLost?(id: string, reason: LostReason): void;
  readonly counts?: CacheCounts;
  /** The description of the folder's contents, for users. */
  readonly about?: StateAbout;
  /** Tells the user; each sentence once. */
  say(sentence: string): void;
  now(): number;
}

interface Place {
  readonly segment: string;
  /** The offset of the unit's bytes. */
  readonly offset: number;
  readonly bytes: number;
  readonly crc: number;
  /** The owners, as far as the files name them. */
  owners: readonly Owner[];
}

/** A unit to be written, or, without its bytes, one that is there and has owners that its files do not say. */
export interface OwnedUnit {
  readonly unit: UnitFacts;
  readonly owners: readonly Owner[];
  readonly data?: Uint8Array;
}

interface Scanned {
  readonly reader: BlockReader;
  /** The offset of the next record; undefined: the rest is not readable. */
  end: number | undefined;
  touchedAt: number;
}

/** The segment that this process appends to. */
interface OwnSegment {
  readonly name: string;
  readonly writer: BlockWriter;
  size: number;
}

interface SegmentFile extends BlockFileFacts {
  readonly folder: BlockFolder;
}

const bytesOf = (files: readonly BlockFileFacts[]): number =>
  files.reduce((sum, { bytes }) => sum + bytes, 0);

async function readInto(
  from: BlockReader,
  offset: number,
  target: readonly Uint8Array[],
): Promise<number> {
  if (target.length === 1) return await from.read(offset, target[0]!);
  if (from.readPieces) return await from.readPieces(offset, target);
  const whole = new Uint8Array(target.reduce((sum, { length }) => sum + length, 0));
  const read = await from.read(offset, whole);
  let at = 0;
  for (const piece of target) {
    piece.set(whole.subarray(at, at + piece.length));
    at += piece.length;
  }
  return read;
}

const MOST_SEGMENT_BYTES: number = 256 * 2 ** 20;
const RETRY_MS = 60_000;
const TOUCH_MS = 60_000;
/** The allowed difference between clocks of file servers. */
const CLOCK_SLACK_MS = 600_000;
/** Left free on the disk for others. */
const SPARE_BYTES: number = 2 ** 30;

/** Whether the unit at this offset was erased, by another process perhaps. */
async function isErased(from: BlockReader, offset: number): Promise<boolean> {
  const header = new Uint8Array(RECORD_HEADER_BYTES);
  const read = await from.read(offset - RECORD_HEADER_BYTES, header).catch(() => 0);
  return readRecordHeader(header.subarray(0, read), defaultCrc32)?.role === "erased";
}

export class DiskTier {
  readonly #parts: DiskTierParts;
  readonly #folder: BlockFolder;
  readonly #crc32: Crc32;
  readonly #places = new Map<string, Place>();
  readonly #segments = new Map<string, Scanned>();
  #own: OwnSegment | undefined;
  #ownName: string | undefined;
  /** Segments that this process has filled. */
  readonly #written: string[] = [];
  #retryAt = 0;
  #refreshing: Promise<void> | undefined;
  #isClosed = false;
  /** Bytes written by this process since the budget was last looked at. */
  #unchecked = Number.POSITIVE_INFINITY;
  /** Bytes of all files when they were last looked at, plus the bytes written since. */
  #used = 0;

  private constructor(parts: DiskTierParts, folder: BlockFolder) {
    this.#parts = parts;
    this.#folder = folder;
    this.#crc32 = parts.folders.crc32 ?? defaultCrc32;
  }

  /** undefined: nothing can be stored there, which is reported. */
  static async open(parts: DiskTierParts): Promise<DiskTier | undefined> {
    try {
      const folder = await parts.folders.folder(parts.root);
      const tier = new DiskTier(parts, folder);
      await tier.refresh();
      tier.#used = bytesOf(await tier.#allFiles());
      return tier;
    } catch (error) {
      parts.say(`state is not kept on disk: ${messageOf(error)}`);
      return undefined;
    }
  }

  has(id: string): boolean {
    return this.#places.has(id);
  }

  /** Whether files say that this unit, which is there, has this owner. */
  isOwned(id: string, owner: Owner): boolean {
    return this.#places.get(id)?.owners.includes(owner) ?? false;
  }

  /** Bytes of all models together. */
  get held(): { bytes: number; budgetBytes: number } {
    return { bytes: this.#used, budgetBytes: this.#parts.budgetBytes };
  }

  /** Looks for units that other processes have written; one look at a time, which all share that ask meanwhile. */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#refresh().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #refresh(): Promise<void> {
    if (this.#isClosed) return;
    const own = this.#own; // one that is begun while files are listed is not in the list
    const files = (await this.#folder.list()).filter(({ name }) =>
      name.endsWith(SEGMENT_EXTENSION),
    );
    const present = new Set(files.map(({ name }) => name));
    for (const name of [...this.#segments.keys()]) {
      if (!present.has(name)) await this.#forget(name, "removed");
    }
    if (own && own === this.#own && !present.has(own.name)) await this.#loseOwn(own);
    files.sort((a, b) => (a.name < b.name ? -1 : 1)); // names begin with the time: units come before their further owners
    for (const file of files) if (file.name !== this.#ownName) await this.#scan(file);
  }

  /** This segment was removed: units appended to it would never be found, so another is begun. */
  async #loseOwn(own: OwnSegment): Promise<void> {
    this.#own = undefined;
    await this.#forget(own.name, "removed");
    await own.writer.close().catch(() => undefined);
  }

  async #scan({ name, bytes }: BlockFileFacts): Promise<void> {
    let scanned = this.#segments.get(name);
    if (!scanned) {
      const reader = await this.#folder.open(name);
      if (!reader) return;
      const start = new Uint8Array(SEGMENT_HEADER_BYTES);
      const read = await reader.read(0, start).catch(() => 0);
      const refusal = segmentRefusal(start.subarray(0, read), this.#parts.root);
      // Nothing says any more whose conversations it holds.
      if (isOldSegment(start.subarray(0, read))) await this.#folder.remove(name);
      if (refusal && read === SEGMENT_HEADER_BYTES) {
        this.#parts.say(`stored state in ${name} is not used: ${refusal}`);
      }
      // A file that is not closed ends the process when it is collected.
      if (refusal || this.#isClosed) {
        await reader.close().catch(() => undefined);
        return;
      }
      scanned = { reader, end: SEGMENT_HEADER_BYTES, touchedAt: 0 };
      this.#segments.set(name, scanned);
    }
    const header = new Uint8Array(RECORD_HEADER_BYTES);
    while (scanned.end !== undefined && scanned.end + RECORD_HEADER_BYTES <= bytes) {
      const { end } = scanned;
      if ((await scanned.reader.read(end, header)) < RECORD_HEADER_BYTES) return;
      const record = readRecordHeader(header, this.#crc32);
      const isOther =
        record?.role === "unit" && record.bytes !== this.#parts.unitBytes[record.kind];
      if (!record || isOther) {
        scanned.end = undefined;
        this.#countDamage();
        this.#parts.say(
          `stored state in ${name} is damaged from byte ${end} on, and the rest of it is not used`,
        );
        return;
      }
      const next = end + RECORD_HEADER_BYTES + record.bytes;
      if (next > bytes) return; // it is being written, or its writer died
      this.#add(name, end, record);
      scanned.end = next;
    }
  }

  #add(segment: string, at: number, record: RecordFacts): void {
    const { role, owner, bytes, crc } = record;
    if (role === "erased") return;
    const id = unitId(record.key, record.kind);
    const before = this.#places.get(id);
    if (role === "owner") {
      // If its unit is in a file that was not read yet, the owner is recorded once more: erase.ts reads all before it decides.
      if (before && !before.owners.includes(owner)) before.owners = [...before.owners, owner];
      return;
    }
    const owners = [...new Set([...(before?.owners ?? []), owner])];
    this.#places.set(id, { segment, offset: at + RECORD_HEADER_BYTES, bytes, crc, owners });
    this.#parts.onUnit(record);
  }

  /** Reads a unit into pieces of memory; false: it is gone or damaged, and forgotten, and the pieces hold anything. */
  async read(id: string, target: readonly Uint8Array[]): Promise<boolean> {
    const place = this.#places.get(id);
    if (!place) return false;
    const { segment, offset, bytes, crc } = place;
    const from =
      segment === this.#own?.name ? this.#own.writer : this.#segments.get(segment)?.reader;
    const isWhole = target.reduce((sum, { length }) => sum + length, 0) === bytes;
    const read = isWhole && from ? await readInto(from, offset, target).catch(() => 0) : 0;
    if (read === bytes && target.reduce((sum, piece) => this.#crc32(piece, sum), 0) === crc) {
      await this.#touch(segment);
      if (this.#parts.counts) this.#parts.counts.restoredBytes.disk += bytes;
      return true;
    }
    if (this.#places.get(id) === place) {
      this.#places.delete(id); // if it is not the same any more, its segment was removed meanwhile
      if (from && (await isErased(from, offset))) {
        this.#parts.onLost?.(id, "removed");
        return false;
      }
      this.#countDamage();
      this.#parts.onLost?.(id, "damaged");
      this.#parts.say(
        `stored state in ${segment} is damaged at byte ${offset}: it is computed again`,
      );
    }
    return false;
  }

  #countDamage(): void {
    if (this.#parts.counts) this.#parts.counts.damaged++;
  }

  async #touch(name: string): Promise<void> {
    const scanned = this.#segments.get(name);
    const now = this.#parts.now();
    if (!scanned || (scanned.touchedAt > 0 && now - scanned.touchedAt < TOUCH_MS)) return;
    scanned.touchedAt = Math.max(now, 1);
    await this.#folder.touch(name);
  }

  /**
   * Appends units, and the owners of those that are there, in one write; one call at a time. Units of private owners only are left
   * out. Failures are reported, and a partial write is undone.
   */
  async append(units: readonly OwnedUnit[]): Promise<void> {
    const records = units.flatMap((unit) => this.#recordsOf(unit));
    if (records.length === 0 || this.#parts.now() < this.#retryAt) return;
    const size = records.reduce((sum, { header, data }) => sum + header.length + data.length, 0);
    try {
      if (!(await this.#makeRoom(size))) return;
      const own = await this.#ownSegment(size);
      const at = own.size;
      try {
        await own.writer.write(at, ...records.flatMap(({ header, data }) => [header, data]));
      } catch (error) {
        await own.writer.truncate(at).catch(() => undefined);
        throw error;
      }
      own.size += size;
      this.#unchecked += size;
      this.#used += size;
      if (this.#parts.counts) this.#parts.counts.writtenBytes += size;
      let start = at;
      for (const { header, data } of records) {
        this.#add(own.name, start, readRecordHeader(header, this.#crc32)!);
        start += header.length + data.length;
      }
    } catch (error) {
      this.#retryAt = this.#parts.now() + RETRY_MS;
      this.#parts.say(
        `state could not be kept on disk: ${messageOf(error)}. Lantern goes on without`,
      );
    }
  }

  #recordsOf({ unit, owners, data }: OwnedUnit): { header: Uint8Array; data: Uint8Array }[] {
    const before = this.#places.get(unitId(unit.key, unit.kind));
    if (!before && !data) return [];
    const named = owners.filter((one) => !isPrivate(one) && !before?.owners.includes(one));
    const none = new Uint8Array();
    return named.map((owner, at) =>
      before || at > 0
        ? { header: ownerRecord(unit, owner, this.#crc32), data: none }
        : { header: recordHeader(unit, data!, owner, this.#crc32), data: data! },
    );
  }

  async #ownSegment(size: number): Promise<OwnSegment> {
    const most = Math.min(MOST_SEGMENT_BYTES, this.#parts.budgetBytes / 8);
    if (this.#own && this.#own.size + size > most) {
      const { name, writer, size: end } = this.#own;
      this.#written.push(name);
      this.#segments.set(name, { reader: writer, end, touchedAt: 0 });
      this.#own = undefined;
    }
    if (!this.#own) {
      const random = Math.floor(Math.random() * 2 ** 40).toString(36);
      const name = `${Date.now().toString(36)}-${random}${SEGMENT_EXTENSION}`;
      this.#ownName = name; // before the file is there: nothing else in this process opens it
      const writer = await this.#folder.create(name);
      const header = segmentHeader(this.#parts.root);
      try {
        await writer.write(0, header);
      } catch (error) {
        await writer.close().catch(() => undefined);
        await this.#folder.remove(name).catch(() => undefined);
        throw error;
      }
      if (this.#parts.about) await writeAbout(this.#folder, this.#parts.about);
      this.#own = { name, writer, size: header.length };
    }
    return this.#own;
  }

  /** Segments of all models. */
  async #allFiles(): Promise<SegmentFile[]> {
    const { folders, root } = this.#parts;
    const files: SegmentFile[] = [];
    for (const name of await folders.names()) {
      const folder = name === root ? this.#folder : await folders.folder(name);
      for (const file of await folder.list()) {
        if (file.name.endsWith(SEGMENT_EXTENSION)) files.push({ ...file, folder });
      }
    }
    return files;
  }

  /** Removes segments until `size` more bytes are within the budget; false: they cannot be. */
  async #makeRoom(size: number): Promise<boolean> {
    const { budgetBytes, folders } = this.#parts;
    if (size + SEGMENT_HEADER_BYTES > budgetBytes) return false;
    // Looking at all files for each unit would cost more than writing it.
    if (this.#unchecked + size < Math.min(budgetBytes / 16, MOST_SEGMENT_BYTES / 8)) return true;
    const files = await this.#allFiles();
    let used = bytesOf(files);
    const free = await folders.freeBytes();
    const budget = Math.min(
      budgetBytes * (15 / 16),
      free === undefined ? Infinity : used + free - SPARE_BYTES,
    );
    // A file written under a wrong clock would be the newest for years: instead, it counts as used now.
    const latest = Date.now() + CLOCK_SLACK_MS;
    for (const file of files) if (file.usedAt > latest) await file.folder.touch(file.name);
    files.sort((a, b) => Math.min(a.usedAt, latest) - Math.min(b.usedAt, latest));
    for (const { name, bytes, folder } of files) {
      if (used + size <= budget) break;
      if (folder === this.#folder && name === this.#own?.name) continue;
      await folder.remove(name);
      if (folder === this.#folder) await this.#forget(name, "budget");
      if (this.#parts.counts) this.#parts.counts.evicted.disk++;
      used -= bytes;
    }
    this.#unchecked = 0;
    this.#used = used;
    if (used + size > Math.max(budget, 0)) {
      this.#unchecked = Number.POSITIVE_INFINITY;
      this.#parts.say(`state is not kept on disk: ${folders.path} has no room for more`);
      return false;
    }
    return true;
  }

  async #forget(name: string, reason: LostReason): Promise<void> {
    for (const [id, { segment }] of this.#places) {
      if (segment !== name) continue;
      this.#places.delete(id);
      this.#parts.onLost?.(id, reason);
    }
    const scanned = this.#segments.get(name);
    this.#segments.delete(name);
    await scanned?.reader.close().catch(() => undefined);
  }

  /** Erases the units here that only these owners have, in the files of all processes. */
  async forget(owners: readonly Owner[]): Promise<void> {
    const own = this.#own;
    const { root } = this.#parts;
    for (const id of await eraseOwners(this.#folder, root, owners, this.#crc32, own)) {
      if (this.#places.delete(id)) this.#parts.onLost?.(id, "removed");
    }
    await this.refresh();
  }

  /** Closes it, and removes the files that this process has written. */
  async discard(): Promise<void> {
    const names = [...this.#written, ...(this.#own ? [this.#own.name] : [])];
    await this.close();
    for (const name of names) await this.#folder.remove(name).catch(() => undefined);
  }

  /** Removes all segments of this model, other processes' included: they notice, and begin new ones. */
  async clear(): Promise<void> {
    for (const { name } of await this.#folder.list()) {
      if (name.endsWith(SEGMENT_EXTENSION)) await this.#folder.remove(name);
    }
    await this.refresh();
    this.#used = bytesOf(await this.#allFiles());
    this.#unchecked = Number.POSITIVE_INFINITY;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#refreshing?.catch(() => undefined);
    for (const { reader } of this.#segments.values()) await reader.close().catch(() => undefined);
    await this.#own?.writer.close().catch(() => undefined);
    this.#segments.clear();
    this.#places.clear();
    this.#own = undefined;
  }
}
