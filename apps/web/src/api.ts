// The interface between the pages and the server, and its implementation over HTTP. Pages and state never call fetch
// themselves: a client in the page (an engine in a worker) could replace this one.
//
// A failed request is a RequestError with the server's message; status 0 means that the server cannot be reached.

import { LanternError } from "../../../src/base/errors.ts";
import type {
  Ask,
  BackupOffer,
  BatchList,
  BatchView,
  CacheView,
  CallEnd,
  Continue,
  LibraryFinding,
  LibraryFolder,
  LibraryVariant,
  LimitsReport,
  LoadOptions,
  LoadPlan,
  MachineView,
  Message,
  ModelList,
  NewSession,
  OpenSession,
  Preset,
  ProfileReport,
  QuantizeView,
  Restored,
  RunEvent,
  RunView,
  SearchHit,
  SessionChange,
  SessionList,
  SessionTree,
  Started,
  ToolResult,
  ToolServers,
  UsageView,
} from "./api-types.ts";
import { readEvents } from "./event-stream.ts";

export type ExportFormat = "json" | "markdown";

export interface LanternClient {
  health(): Promise<void>;
  /** Sends the server's token or admin key; the response sets a cookie. */
  login(key: string): Promise<void>;
  sessions(cursor?: string): Promise<SessionList>;
  createSession(session: NewSession): Promise<OpenSession>;
  tree(session: string): Promise<SessionTree>;
  changeSession(session: string, change: SessionChange): Promise<OpenSession>;
  /** The parts of it that are still on the server's disk; null: none. */
  deleteSession(session: string): Promise<string | null>;
  /** The newest good backup, also when the conversations cannot be opened. */
  backup(): Promise<BackupOffer | null>;
  /** Adds missing or damaged rows from it. */
  restore(): Promise<Restored>;
  search(query: string): Promise<SearchHit[]>;
  exportSession(session: string, format: ExportFormat): Promise<Blob>;
  importSession(text: string): Promise<OpenSession>;
  presets(): Promise<Preset[]>;
  savePreset(preset: Preset): Promise<void>;
  deletePreset(name: string): Promise<void>;
  /** Starts an answer. */
  ask(session: string, ask: Ask): Promise<Started>;
  /** Saves a message without an answer. */
  keep(session: string, ask: Ask): Promise<Message>;
  /** Starts continuations of a story. */
  continueAnswer(session: string, wanted: Continue): Promise<Started>;
  /** Makes a new chat with a summary of this one. */
  summarise(
    session: string,
    signal: AbortSignal,
  ): Promise<{ session: OpenSession; unread: number }>;
  /** Gives the result of a call, or refuses it. */
  endCall(session: string, end: CallEnd): Promise<Message>;
  cancelRun(run: string): Promise<void>;
  /** Continues after the event `lastId`; without one, a snapshot comes first. */
  runEvents(run: string, lastId: string | undefined, signal: AbortSignal): AsyncIterable<RunEvent>;
  models(): Promise<ModelList>;
  download(name: string): Promise<ModelList>;
  load(name: string, options?: LoadOptions): Promise<ModelList>;
  cancelTask(name: string): Promise<ModelList>;
  unload(name: string): Promise<ModelList>;
  deleteModel(name: string): Promise<ModelList>;
  /** The memory that loading it would take. */
  plan(
    name: string,
    options: Pick<LoadOptions, "contextSize" | "kvType" | "weights">,
  ): Promise<LoadPlan>;
  searchHub(words: string): Promise<LibraryFinding[]>;
  variants(repository: string): Promise<LibraryVariant[]>;
  folder(path?: string): Promise<LibraryFolder>;
  /** Paths of files of that name and size on this machine. */
  findFile(name: string, bytes: number): Promise<string[]>;
  linkModel(path: string): Promise<{ name: string; list: ModelList }>;
  /** Servers of tools; one that was started without them has none. */
  toolServers(): Promise<ToolServers>;
  /** Runs a tool of a server: the person has confirmed it. */
  callTool(name: string, values: unknown, signal: AbortSignal): Promise<ToolResult>;
  /** Copies of conversations in memory and on disk. */
  cache(): Promise<CacheView>;
  /** Clears one folder of them, or all. */
  clearCache(folder?: string): Promise<CacheView>;
  machine(): Promise<MachineView>;
  usage(): Promise<UsageView>;
  measure(): Promise<void>;
  profile(model: string): Promise<ProfileReport>;
  /** The limits of the device it runs on, or of a device of the table. */
  limits(model: string, device?: string): Promise<LimitsReport>;
  quantize(): Promise<QuantizeView>;
  startQuantize(model: string, type: string, text: string | undefined): Promise<QuantizeView>;
  cancelQuantize(): Promise<QuantizeView>;
  /** The newest batches. */
  batches(): Promise<BatchList>;
  /** Uploads a file of requests and starts a batch of them. */
  startBatch(file: File, endpoint: string): Promise<BatchView>;
  cancelBatch(id: string): Promise<BatchView>;
  fileContent(id: string): Promise<Blob>;
}

/** `status` is 0 if there was no response at all. */
export class RequestError extends LanternError {
  override name: string = "RequestError";
  readonly status: number;
  /** The server's stable code: "context_length_exceeded". */
  readonly reason: string | null;

  constructor(status: number, reason: string | null, message: string) {
    super("source", message);
    this.status = status;
    this.reason = reason;
  }

  get offline(): boolean {
    return this.status === 0;
  }
}

interface Wanted {
  method?: string;
  body?: unknown;
  text?: string;
  form?: FormData;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

interface Hooks {
  /** The API key to send; undefined: none. */
  key(): string | undefined;
  /** Called after every request with whether the server responded. */
  reached(answered: boolean): void;
}

export function httpClient(base: string, hooks: Hooks): LanternClient {
  const send = async (path: string, wanted: Wanted = {}): Promise<Response> => {
    const { method = "GET", body, text, form, signal } = wanted;
    const headers: Record<string, string> = { ...wanted.headers };
    const key = hooks.key();
    if (key !== undefined && headers.authorization === undefined)
      headers.authorization = `Bearer ${key}`;
    const payload = text ?? (body === undefined ? undefined : JSON.stringify(body));
    if (payload !== undefined) headers["content-type"] = "application/json";
    const response = await fetch(`${base}${path}`, {
      method,
      headers,
      ...(payload !== undefined && { body: payload }),
      ...(form && { body: form }), // the browser sets its type and boundary
      ...(signal && { signal }),
    }).catch((error: unknown) => {
      if (signal?.aborted) throw error;
      hooks.reached(false);
      throw new RequestError(0, null, "The server does not respond. Is Lantern still running?");
    });
    hooks.reached(true);
    if (!response.ok) throw await failure(response);
    return response;
  };
  const json = async <T>(path: string, wanted?: Wanted): Promise<T> =>
    (await (await send(path, wanted)).json()) as T;
  const post = <T>(path: string, body: unknown): Promise<T> =>
    json<T>(path, { method: "POST", body });

  const one = (session: string): string => `/lantern/v1/sessions/${encodeURIComponent(session)}`;
  const preset = (name: string): string => `/lantern/v1/presets/${encodeURIComponent(name)}`;
  const models = "/lantern/v1/models";

  return {
    async health() {
      await send("/health");
    },
    async login(key) {
      const headers = { authorization: `Bearer ${key}` };
      await send("/lantern/v1/login", { method: "POST", headers });
    },
    sessions: (cursor) =>
      json(`/lantern/v1/sessions?limit=50${cursor === undefined ? "" : `&cursor=${cursor}`}`),
    createSession: (session) => post("/lantern/v1/sessions", session),
    tree: (session) => json(`${one(session)}/messages`),
    changeSession: (session, change) => json(one(session), { method: "PATCH", body: change }),
    async deleteSession(session) {
      const { warning } = await json<{ warning: string | null }>(one(session), {
        method: "DELETE",
      });
      return warning;
    },
    async backup() {
      return (await json<{ backup: BackupOffer | null }>("/lantern/v1/restore")).backup;
    },
    restore: () => post("/lantern/v1/restore", {}),
    async search(query) {
      const path = `/lantern/v1/search?q=${encodeURIComponent(query)}&limit=50`;
      return (await json<{ hits: SearchHit[] }>(path)).hits;
    },
    async exportSession(session, format) {
      return await (await send(`${one(session)}/export?format=${format}`)).blob();
    },
    importSession: (text) => json("/lantern/v1/import", { method: "POST", text }),
    async presets() {
      return (await json<{ presets: Preset[] }>("/lantern/v1/presets")).presets;
    },
    async savePreset({ name, settings }) {
      await send(preset(name), { method: "PUT", body: { settings } });
    },
    async deletePreset(name) {
      await send(preset(name), { method: "DELETE" });
    },
    ask: (session, ask) => post(`${one(session)}/messages`, ask),
    async keep(session, ask) {
      const kept = { ...ask, generate: false };
      return (await post<{ message: Message }>(`${one(session)}/messages`, kept)).message;
    },
    continueAnswer: (session, wanted) => post(`${one(session)}/continue`, wanted),
    summarise: (session, signal) =>
      json(`${one(session)}/summary`, { method: "POST", body: {}, signal }),
    async endCall(session, end) {
      return (await post<{ message: Message }>(`${one(session)}/calls`, end)).message;
    },
    async cancelRun(run) {
      await post<RunView>(`/lantern/v1/runs/${encodeURIComponent(run)}/cancel`, {});
    },
    async *runEvents(run, lastId, signal) {
      const headers: Record<string, string> =
        lastId === undefined ? {} : { "last-event-id": lastId };
      const path = `/lantern/v1/runs/${encodeURIComponent(run)}/events`;
      const response = await send(path, { headers, signal });
      for await (const event of readEvents(response.body!)) {
        const { name, id, data } = event;
        yield {
          name,
          data: JSON.parse(data) as never,
          ...(id !== undefined && { id }),
        } as RunEvent;
      }
    },
    models: () => json(models),
    download: (name) => post(`${models}/download`, { name }),
    load: (name, options = {}) => post(`${models}/load`, { name, ...options }),
    cancelTask: (name) => post(`${models}/cancel`, { name }),
    unload: (name) => post(`${models}/unload`, { name }),
    deleteModel: (name) => post(`${models}/delete`, { name }),
    plan: (name, options) => post(`${models}/plan`, { name, ...options }),
    async searchHub(words) {
      const path = `${models}/search?q=${encodeURIComponent(words)}`;
      return (await json<{ found: LibraryFinding[] }>(path)).found;
    },
    async variants(repository) {
      const path = `${models}/variants?name=${encodeURIComponent(repository)}`;
      return (await json<{ variants: LibraryVariant[] }>(path)).variants;
    },
    folder: (path) =>
      json(`${models}/folder${path === undefined ? "" : `?path=${encodeURIComponent(path)}`}`),
    async findFile(name, bytes) {
      return (await post<{ paths: string[] }>(`${models}/find`, { name, bytes })).paths;
    },
    linkModel: (path) => post(`${models}/link`, { path }),
    toolServers: () => json("/lantern/v1/tools"),
    callTool: (name, values, signal) =>
      json("/lantern/v1/tools/call", { method: "POST", body: { name, arguments: values }, signal }),
    cache: () => json("/lantern/v1/cache"),
    clearCache: (folder) => post("/lantern/v1/cache/clear", folder === undefined ? {} : { folder }),
    machine: () => json("/lantern/v1/machine"),
    usage: () => json("/lantern/v1/machine/usage"),
    async measure() {
      await post("/lantern/v1/machine/measure", {});
    },
    async profile(model) {
      const path = `/lantern/v1/profile?model=${encodeURIComponent(model)}`;
      return (await json<{ report: ProfileReport }>(path)).report;
    },
    limits: (model, device) => {
      const asked = new URLSearchParams({ model, ...(device !== undefined && { device }) });
      return json(`/lantern/v1/limits?${asked}`);
    },
    quantize: () => json("/lantern/v1/quantize"),
    startQuantize: (model, type, text) =>
      post("/lantern/v1/quantize", { model, type, ...(text !== undefined && { text }) }),
    cancelQuantize: () => post("/lantern/v1/quantize/cancel", {}),
    async batches() {
      const [batches, files] = await Promise.all([
        json<Omit<BatchList, "names">>("/v1/batches?limit=50"),
        json<{ data: { id: string; filename: string }[] }>("/v1/files?purpose=batch&limit=1000"),
      ]);
      return { ...batches, names: new Map(files.data.map(({ id, filename }) => [id, filename])) };
    },
    async startBatch(file, endpoint) {
      const form = new FormData();
      form.set("purpose", "batch");
      form.set("file", file, file.name);
      const { id } = await json<{ id: string }>("/v1/files", { method: "POST", form });
      const wanted = { input_file_id: id, endpoint, completion_window: "24h" };
      return await post<BatchView>("/v1/batches", wanted);
    },
    cancelBatch: (id) => post(`/v1/batches/${encodeURIComponent(id)}/cancel`, {}),
    async fileContent(id) {
      return await (await send(`/v1/files/${encodeURIComponent(id)}/content`)).blob();
    },
  };
}

interface ErrorBody {
  error?: { message?: unknown; code?: unknown };
}

async function failure(response: Response): Promise<RequestError> {
  const body = (await response.json().catch(() => ({}))) as ErrorBody;
  const { message, code } = body.error ?? {};
  return new RequestError(
    response.status,
    typeof code === "string" ? code : null,
    typeof message === "string" ? message : `The server answered with status ${response.status}.`,
  );
}

/** The message that a person may read for any thrown value. */
export function sentence(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text === "" ? "Something went wrong." : `${text[0]!.toUpperCase()}${text.slice(1)}`;
}
