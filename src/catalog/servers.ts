// The servers running on this machine. Each writes a small file in the cache folder with its process id, address and
// loaded model files. `lantern ps` lists servers from these files, and `lantern rm` refuses to delete a loaded model.

import type { DownloadPlatform } from "../platform/download.ts";

export interface ServerRecord {
  processId: number;
  /** "http://127.0.0.1:8080" */
  url: string;
  /** ISO date and time. */
  since: string;
  models: { id: string; path: string }[];
}

const folderName = ".servers";

/** This process's entry in the list of servers. */
export interface AnnouncedServer {
  /** Call when the loaded models have changed. */
  update(models: ServerRecord["models"]): Promise<void>;
  /** Removes the entry when the server ends. */
  withdraw(): Promise<void>;
}

/** Records that this process serves at an address. A folder that cannot be written does not stop the server. */
export async function announceServer(
  platform: DownloadPlatform,
  record: Omit<ServerRecord, "processId">,
): Promise<AnnouncedServer> {
  const folder = platform.join(platform.cacheFolder, folderName);
  const file = platform.join(folder, `${platform.processId}.json`);
  // Writes are serialized and atomic: two at once would mix, and a loaded file would lose its protection.
  let last: Promise<void> = Promise.resolve();
  const afterLast = (work: () => Promise<void>): Promise<void> => {
    last = last.then(work).catch(() => {});
    return last;
  };
  const update = (models: ServerRecord["models"]): Promise<void> =>
    afterLast(async () => {
      const text = JSON.stringify({ ...record, models, processId: platform.processId });
      await platform.makeFolder(folder, { closed: true });
      try {
        await platform.writeText(`${file}.new`, text);
        await platform.rename(`${file}.new`, file);
      } catch (error) {
        await platform.remove(`${file}.new`);
        throw error;
      }
    });
  await update(record.models);
  return { update, withdraw: () => afterLast(() => platform.remove(file)) };
}

/** The servers that still run, oldest first; records of dead ones are removed. */
export async function runningServers(platform: DownloadPlatform): Promise<ServerRecord[]> {
  const folder = platform.join(platform.cacheFolder, folderName);
  const records: ServerRecord[] = [];
  for (const { name } of (await platform.listFolder(folder)) ?? []) {
    if (!name.endsWith(".json")) continue; // still being written
    const file = platform.join(folder, name);
    const record = readRecord(await platform.readText(file).catch(() => undefined));
    if (record && platform.isRunning(record.processId)) records.push(record);
    else if (record) await platform.remove(file).catch(() => {});
  }
  return records.sort((a, b) => a.since.localeCompare(b.since));
}

/** undefined if it is not such a record, or half written. */
function readRecord(text: string | undefined): ServerRecord | undefined {
  try {
    const found = JSON.parse(text ?? "") as Partial<ServerRecord>;
    const { processId, url, since, models } = found;
    const isWhole =
      Number.isSafeInteger(processId) &&
      typeof url === "string" &&
      /^https?:\/\//.test(url) &&
      typeof since === "string" &&
      Array.isArray(models) &&
      models.every(({ id, path }) => typeof id === "string" && typeof path === "string");
    return isWhole ? (found as ServerRecord) : undefined;
  } catch {
    return undefined;
  }
}
