// A tune file that the user names, instead of the stored one. The user asked for it, so a file that does not apply here
// is an error, where a stored one would only be passed over.

import { SourceError, UsageError } from "../base/errors.ts";
import type { ByteSource, Platform, SourceSpec } from "../platform/platform.ts";
import { staleFact } from "./choose.ts";
import { parseTuneFile, type TuneFile, type TuneIdentity } from "./tune-file.ts";

export interface GivenTune {
  /** For messages. */
  readonly name: string;
  readonly file: TuneFile;
}

/** Files have some ten kilobytes per shape. */
const MOST_BYTES: number = 16 << 20;

export async function readGivenTune(
  platform: Pick<Platform, "openModelSource">,
  spec: SourceSpec,
): Promise<GivenTune> {
  const name = nameOf(spec);
  const bytes = await open(platform, spec).catch((cause: unknown) => {
    throw new SourceError(
      `tuneFile: cannot open ${name}, expected a file from "lantern tune --file"`,
      { cause },
    );
  });
  if (!bytes) {
    throw new SourceError(
      `tuneFile: ${name} is a folder, expected a file from "lantern tune --file"`,
    );
  }
  try {
    if (bytes.size > MOST_BYTES) {
      throw new SourceError(
        `tuneFile: ${name} has ${bytes.size} bytes, expected a file from "lantern tune --file", of at most ${MOST_BYTES}`,
      );
    }
    const text = new TextDecoder().decode(await bytes.read(0, bytes.size));
    return { name, file: parseTuneFile(text, name) };
  } finally {
    await bytes.close();
  }
}

/** undefined: it is a folder. */
async function open(
  platform: Pick<Platform, "openModelSource">,
  spec: SourceSpec,
): Promise<ByteSource | undefined> {
  const source = await platform.openModelSource(spec);
  return source.main === undefined ? undefined : await source.open(source.main);
}

function nameOf(spec: SourceSpec): string {
  if (spec.kind === "files") return spec.files[0]!.name;
  return spec.kind === "path" ? spec.path : spec.url;
}

/** The file, if it belongs to this machine and these kernels. */
export function checkGivenTune({ name, file }: GivenTune, here: TuneIdentity): TuneFile {
  const fact = staleFact(file, here);
  if (fact === undefined) return file;
  throw new UsageError(
    `tuneFile: ${name} was made with another ${fact}: got "${file[fact]}", expected "${here[fact]}". Make one here with "lantern tune --file FILE", or leave tuneFile out`,
  );
}
