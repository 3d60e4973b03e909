// From a user's name for a model to its open file.

import type { ModelLocation } from "../api/api.ts";
import type { ModelFile } from "../formats/model-file.ts";
import { openModelFile } from "../formats/open-model-file.ts";
import { currentPlatform } from "../platform/current.ts";
import { locate } from "./locate.ts";

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
