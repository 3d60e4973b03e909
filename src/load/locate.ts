// From a user's name for a model (a path, a URL, a File, a catalog name) to where it lies. Everything that takes a model uses this
// file, so all of it accepts the same names.

import type { ModelLocation } from "../api/api.ts";
import { isIterable, wrongArgument } from "../base/arguments.ts";
import type { Platform } from "../platform/platform.ts";

/** Replaces a catalog name by its local file, without a download. */
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
