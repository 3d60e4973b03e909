// From a user's name for a model (a path, a URL, a File, a catalog name) to its open file. Everything that takes a
// model uses this file, so all of it accepts the same names.

import type { ModelLocation } from "../api/api.ts";
import { isIterable, wrongArgument } from "../engine/arguments.ts";
import type { ModelFile } from "../formats/model-file.ts";
import { openModelFile } from "../formats/open-model-file.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";

/** Opens the header of a model file, and closes it after use. */
export async function withModelFile<T>(
  location: ModelLocation,
  use: (file: ModelFile) => T | Promise<T>,
): Promise<T> {
  const platform = await currentPlatform();
  const spec = platform.describeSource(await locate(location, platform));
  const source = await platform.openModelSource(spec);
  const file = await openModelFile(source);
  try {
    return await use(file);
  } finally {
    await file.close();
  }
}

/** Replaces a catalog name by its local file; downloads nothing. */
export async function locate(location: ModelLocation, platform: Platform): Promise<ModelLocation> {
  checkLocation(location);
  if (typeof location !== "string" || !platform.downloads) return location;
  if (await platform.isPath(location)) return location; // most models are: the catalog need not be loaded
  const { locateModel } = await import("../catalog/resolve.ts"); // a page never loads the catalog
  return await locateModel(location, await platform.downloads());
}

function checkLocation(location: unknown): void {
  if (typeof location === "string" || location instanceof URL || location instanceof File) return;
  const isList = isIterable(location) && [...location].every((file) => file instanceof File);
  if (isList) return;
  throw wrongArgument("model", location, "a path, a URL, a File or a list of Files");
}
