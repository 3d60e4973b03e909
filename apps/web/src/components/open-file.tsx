// Opens a model that is already on this machine. The server opens the file in its folder, without an upload, so it
// needs the path. A browser does not reveal the path of a dropped or picked file; the server looks for its name and
// size.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { LibraryFolder } from "../api-types.ts";
import { client } from "../state/connection.ts";
import { bytesText } from "../state/format.ts";
import { openPath } from "../state/models.ts";
import { attempt } from "../state/notices.ts";
import { Dialog } from "./dialog.tsx";
import { Icon } from "./icon.tsx";

export function OpenFile(): JSX.Element {
  const [path, setPath] = useState("");
  const [note, setNote] = useState<string | null>(null);
  const [found, setFound] = useState<string[]>([]);
  const [isBrowsing, setIsBrowsing] = useState(false);
  const [isOver, setIsOver] = useState(false);
  const open = async (wanted: string): Promise<void> => {
    setNote(null);
    setFound([]);
    setPath(wanted);
    const done = await attempt(async () => {
      await openPath(wanted);
      return true;
    });
    if (done) setPath("");
  };
  const take = async ({ name, size }: File): Promise<void> => {
    if (!/\.(gguf|bin)$/i.test(name)) {
      setNote(`${name} is not a model file. Choose a file that ends in .gguf.`);
      return;
    }
    const paths = await attempt(() => client.findFile(name, size));
    if (paths?.length === 1) return await open(paths[0]!);
    setFound(paths ?? []);
    setPath(name);
    setNote(
      paths && paths.length > 1
        ? "There are several files with this name and size. Which one?"
        : `A browser does not say where a file is, and ${name} is not in one of the usual folders. Type its path, or browse to it.`,
    );
  };
  const drop = (event: DragEvent): void => {
    event.preventDefault();
    setIsOver(false);
    const { files } = event.dataTransfer!;
    // Some file managers provide the path.
    const address = event.dataTransfer!.getData("text/uri-list").split("\n")[0]!.trim();
    if (/^file:\/\//i.test(address)) {
      void open(decodeURIComponent(new URL(address).pathname));
    } else if (files[0]) void take(files[0]);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping is one more way; the field and the buttons do the same
    <div
      class={isOver ? "drop over" : "drop"}
      onDragOver={(event) => {
        event.preventDefault();
        setIsOver(true);
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={drop}
    >
      <form
        class="hub"
        onSubmit={(event) => {
          event.preventDefault();
          if (path.trim() !== "") void open(path.trim());
        }}
      >
        <label class="field">
          <span class="field-label">Path of a GGUF file, or of a folder with safetensors</span>
          <span class="row">
            <input
              value={path}
              placeholder="~/Downloads/model.gguf"
              spellcheck={false}
              onInput={(event) => setPath(event.currentTarget.value)}
            />
            <button type="submit" disabled={path.trim() === ""}>
              Open
            </button>
            <button type="button" onClick={() => setIsBrowsing(true)}>
              Browse…
            </button>
          </span>
        </label>
      </form>
      {note !== null && (
        <p class="ending" role="status">
          {note}
        </p>
      )}
      {found.length > 0 && (
        <ul class="plain">
          {found.map((one) => (
            <li key={one}>
              <button type="button" class="link" onClick={() => void open(one)}>
                {one}
              </button>
            </li>
          ))}
        </ul>
      )}
      <p class="hint">
        Or drop a file here. It is opened where it is; nothing is copied or uploaded.{" "}
        <label class="link pick">
          Choose a file…
          <input
            type="file"
            class="visually-hidden"
            accept=".gguf,.bin"
            onChange={(event) => {
              const [file] = event.currentTarget.files ?? [];
              if (file) void take(file);
              event.currentTarget.value = "";
            }}
          />
        </label>
      </p>
      {isBrowsing && (
        <Browse onClose={() => setIsBrowsing(false)} onPick={(picked) => void open(picked)} />
      )}
    </div>
  );
}

/** Folders of the server's machine, with the models in them. */
function Browse({ onClose, onPick }: { onClose(): void; onPick(path: string): void }): JSX.Element {
  const [folder, setFolder] = useState<LibraryFolder | null>(null);
  const enter = (path?: string): void =>
    void attempt(async () => setFolder(await client.folder(path)));
  useEffect(() => enter(), []);
  return (
    <Dialog title="Open a model" onClose={onClose}>
      {folder && (
        <>
          <p class="hint path">{folder.path}</p>
          <ul class="browse">
            {folder.parent !== null && (
              <li>
                <button type="button" class="quiet" onClick={() => enter(folder.parent!)}>
                  <Icon name="back" /> Parent folder
                </button>
              </li>
            )}
            {folder.entries.map(({ name, path, kind, bytes }) => (
              <li key={path}>
                <button
                  type="button"
                  class="quiet"
                  onClick={() => {
                    if (kind === "folder") return enter(path);
                    onPick(path);
                    onClose();
                  }}
                >
                  <Icon name={kind === "folder" ? "right" : "models"} /> {name}
                  {kind === "model" && bytes > 1e5 && <span class="hint"> {bytesText(bytes)}</span>}
                </button>
              </li>
            ))}
          </ul>
          {folder.entries.length === 0 && (
            <p class="hint">There are no folders and no models in this folder.</p>
          )}
        </>
      )}
    </Dialog>
  );
}
