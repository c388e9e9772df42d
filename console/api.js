// What the broker answers under /api/. It is asked for nothing else, and nobody else is asked.

const PATIENCE_MS = 15000;

/** An answer that is an error, or none at all (`status` 0). */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function get(path) {
  let answer;
  try {
    answer = await fetch(path, { headers: { accept: "application/json" }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch (error) {
    throw new ApiError(0, error.name === "TimeoutError" ? `no answer within ${PATIENCE_MS / 1000} s` : "no connection");
  }
  let body;
  try {
    body = await answer.json();
  } catch {
    body = null;
  }
  if (!answer.ok) throw new ApiError(answer.status, body?.error ?? `status ${answer.status}`);
  if (body === null) throw new ApiError(0, "an answer that is not JSON");
  return body;
}

/** Browsers take these out of paths, however they are encoded. */
const isFolder = (name) => name === "" || name === "." || name === "..";

/** A topic's name as a part of a path; no topic has a name that isn't one. */
function part(name) {
  if (isFolder(name)) throw new ApiError(404, "no topic has this name");
  return encodeURIComponent(name);
}

export const overview = () => get("/api/overview");
export const groups = (limit, find) => get(`/api/groups?limit=${limit}${find ? `&find=${encodeURIComponent(find)}` : ""}`);
export const group = (name) => get(isFolder(name) ? `/api/group?name=${encodeURIComponent(name)}` : `/api/groups/${encodeURIComponent(name)}`);
export const topics = (limit, internal) => get(`/api/topics?limit=${limit}&internal=${internal}`);
export const topic = async (name) => get(`/api/topics/${part(name)}`);
export const broker = () => get("/api/broker");

/** The latest records of a partition, or those from an offset on. */
export async function records(name, partition, from, limit) {
  const start = from === null ? "" : `&from=${from}`;
  return get(`/api/topics/${part(name)}/partitions/${partition}/records?limit=${limit}${start}`);
}
