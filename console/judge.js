// What figures mean: whether a group keeps up, and if not, in which way. The words are the same on every page.

import { count, counted, duration, isNumber, plainName } from "./format.js";

/** From here on a group counts as behind; below, records are just on their way. */
export const BEHIND_SECONDS = 60;
/** A margin below this is shown as a danger. */
export const MARGIN_SECONDS = 3600;

/** `38 min behind`, `caught up`, `12 records behind` where the time isn't known. */
export function behind({ lag, lag_seconds }) {
  if (lag === 0) return "caught up";
  if (isNumber(lag_seconds)) return `${duration(lag_seconds)} behind`;
  return isNumber(lag) ? `${counted(lag, "record")} behind` : "not known yet";
}

export const isBehind = ({ lag, lag_seconds }) => lag > 0 && !(lag_seconds < BEHIND_SECONDS);

/** Tags of a group, the gravest first: `{ level, word, why }`, level one of bad, warn, good and nothing. */
export function ofGroup(group) {
  const tags = [];
  const { lag, consume_rate: rate, retention_margin_seconds: margin, stuck_partitions: stuck } = group;
  if (lag > 0 && isNumber(margin) && margin < MARGIN_SECONDS) {
    tags.push({ level: "bad", word: margin < 60 ? "losing records now" : `loses records in ${duration(margin)}`, why: "retention deletes the oldest unread record then" });
  }
  if (lag > 0 && group.members === 0) tags.push({ level: "warn", word: "nobody reads", why: "the group has offsets, but no members" });
  else if (isBehind(group)) {
    // No rate yet: it has only just begun to be watched.
    if (!isNumber(rate)) tags.push({ level: "warn", word: "behind", why: "how fast it reads isn't known yet" });
    else if (stuck > 0) tags.push({ level: "bad", word: stuck === group.partitions ? "stuck" : `${counted(stuck, "partition")} stuck`, why: "records wait, but their owners have taken no step for five minutes" });
    else if (group.catches_up === false) tags.push({ level: "bad", word: "falling behind", why: "records come faster than it commits" });
    else tags.push({ level: "warn", word: "catching up", why: `done in ${duration(group.catch_up_seconds)} at the present rates` });
  }
  if (group.beyond_end_partitions > 0) tags.push({ level: "bad", word: "beyond the end", why: `${counted(group.beyond_end_partitions, "commit lies", "commits lie")} beyond the end of the log: the log is not the one that was read` });
  if (/rebalanc/i.test(group.state)) tags.push({ level: "warn", word: "rebalancing", why: "partitions are being handed out; nobody reads meanwhile" });
  if (group.lost_records > 0) tags.push({ level: "warn", word: `${count(group.lost_records)} lost`, why: "records that retention deleted before the group had read them" });
  if (group.uncommitted_partitions > 0) tags.push({ level: "warn", word: "reads without committing", why: `${counted(group.uncommitted_partitions, "partition")} are fetched, but no offset was ever committed` });
  if (group.held_back_partitions > 0) tags.push({ level: "warn", word: "held back", why: `an open transaction holds it back on ${counted(group.held_back_partitions, "partition")}` });
  if (group.abandoned_partitions > 0) tags.push({ level: "", word: `${count(group.abandoned_partitions)} abandoned`, why: "partitions with an old commit that no member subscribes to any more" });
  if (tags.every((tag) => tag.level === "")) tags.unshift({ level: "good", word: group.members === 0 && lag === 0 ? "nothing left" : "keeps up", why: "" });
  return tags;
}

const READING = {
  committing: null,
  fetching_only: { level: "warn", word: "never commits", why: "a member fetches it, but no offset was ever committed" },
  silent: { level: "warn", word: "silent", why: "a member owns it, but neither fetched nor committed anything lately" },
  idle: { level: "", word: "nobody reads", why: "the group has no members" },
  abandoned: { level: "", word: "abandoned", why: "members are there, but none subscribes to this topic any more" },
  unowned: { level: "warn", word: "no owner", why: "the topic is subscribed, but no member has this partition now" },
};

/** From here on an open transaction is worth a warning. */
const OPEN_SECONDS = 300;
/** From here on it is shown to a group's readers: younger ones are on their way. */
const HELD_SECONDS = 10;

/** Who has a transaction open: `producer 7 (payments)`. */
export const whoHolds = (open) => `producer ${open.producer_id}${open.transactional_id === null ? "" : ` (${plainName(open.transactional_id)})`}`;

/** The tag of a partition's oldest open transaction. */
export function ofTransaction(open) {
  const hangs = open.ended_by === "nobody";
  const why = `${whoHolds(open)} since offset ${open.first_offset}: readers of committed records wait for it${hangs ? ", and no coordinator knows of it: kafka-transactions abort ends it" : ""}`;
  return { level: hangs ? "bad" : open.age_seconds > OPEN_SECONDS ? "warn" : "", word: `transaction ${hangs ? "hangs" : "open"} for ${duration(open.age_seconds)}`, why };
}

/** Tags of one partition of a group. */
export function ofPartition(partition) {
  const tags = [];
  const { lag, retention_margin_seconds: margin, beyond_end: beyond } = partition;
  if (lag > 0 && isNumber(margin) && margin < MARGIN_SECONDS) tags.push({ level: "bad", word: `loses in ${duration(margin)}`, why: "retention deletes the oldest unread record then" });
  const reading = READING[partition.reading];
  if (reading) tags.push(reading);
  if (partition.stuck) tags.push({ level: "bad", word: "stuck", why: `records wait, but its owner has taken no step for ${duration(partition.stalled_seconds)}` });
  if (beyond > 0) tags.push({ level: "bad", word: "beyond the end", why: `committed ${counted(beyond, "record")} beyond the end of the log: the log is not the one that was read, and the next fetch starts over` });
  if (partition.lost_records > 0) tags.push({ level: "warn", word: `${count(partition.lost_records)} lost`, why: "deleted by retention before they were read" });
  const open = partition.open_transaction;
  if (open && (open.ended_by === "nobody" || open.age_seconds >= HELD_SECONDS)) tags.push(ofTransaction(open));
  return tags;
}

/** A partition that gets this many times the mean is hot. */
export const HOT_RATIO = 2;

/** The sentence at the top of the overview. */
export function headline({ total, late }) {
  if (total === 0) return "No consumer groups yet.";
  if (late === 0) return total === 1 ? "The one group is less than a minute behind." : `None of ${count(total)} groups is behind by a minute or more.`;
  return `${count(late)} of ${counted(total, "group")} ${late === 1 ? "is" : "are"} behind by a minute or more.`;
}
