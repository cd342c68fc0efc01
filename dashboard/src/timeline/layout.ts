// Where events stand on the timeline: tracks, and lanes for events of one track that overlap.

import type { TimelineEvent, TimelineTrack } from "../types";

export const ROW = 20;
export const GAP = 5;
const MOST_LANES = 8; // further events of a track share its last lane

export interface Lane {
  y: number;
  events: TimelineEvent[]; // sorted by start
}

export interface TrackLayout {
  track: TimelineTrack;
  y: number;
  height: number;
  lanes: Lane[];
}

export interface Layout {
  tracks: TrackLayout[];
  height: number;
  first: number | null;
  last: number | null;
}

export function endOf(event: TimelineEvent): number {
  return event.end ?? Infinity;
}

export function arrange(tracks: TimelineTrack[], events: TimelineEvent[]): Layout {
  const byTrack = new Map<string, TimelineEvent[]>(tracks.map((track) => [track.id, []]));
  let first: number | null = null;
  let last: number | null = null;
  for (const event of events) {
    byTrack.get(event.track)?.push(event);
    if (first === null || event.start < first) first = event.start;
    const end = event.end ?? event.start;
    if (last === null || end > last) last = end;
  }
  let y = GAP;
  const filled = tracks.filter((track) => byTrack.get(track.id)?.length);
  const layouts = filled.map((track) => {
    const lanes = assignLanes(byTrack.get(track.id) ?? [], y);
    const height = lanes.length * ROW;
    const layout = { track, y, height, lanes };
    y += height + GAP;
    return layout;
  });
  return { tracks: layouts, height: y, first, last };
}

function assignLanes(events: TimelineEvent[], y: number): Lane[] {
  const lanes: Lane[] = [];
  const ends: number[] = [];
  for (const event of events.sort((one, other) => one.start - other.start)) {
    let lane = ends.findIndex((end) => end <= event.start + 1e-9);
    if (lane < 0) {
      lane = Math.min(lanes.length, MOST_LANES - 1);
      if (lane === lanes.length) lanes.push({ y: y + lane * ROW, events: [] });
    }
    lanes[lane]?.events.push(event);
    ends[lane] = Math.max(ends[lane] ?? 0, endOf(event));
  }
  return lanes;
}

/** Return the index of the first event of a lane that may reach into the time after `from`. */
export function firstVisible(events: TimelineEvent[], from: number): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((events[middle]?.start ?? 0) < from) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

const STEPS = [
  1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
].concat([1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400]);

/** Return the distance of the marks on the time axis. */
export function tickStep(span: number, width: number): number {
  const wanted = (span / Math.max(1, width)) * 110;
  return STEPS.find((step) => step >= wanted) ?? 86400;
}

/** Return the name of a track: the title of the process, with its PID. */
export function titleOf({ title, pid }: TimelineTrack): string {
  return pid === null || title.includes(String(pid)) ? title : `${title} ${pid}`;
}

/** Return a short name of a track: that of its actor, or the PID. */
export function labelOf({ title, pid }: TimelineTrack, isNarrow: boolean): string {
  const actor = title.replace(/^actor /, "");
  if (actor !== title) return isNarrow ? (actor.split(" ")[0] ?? actor) : actor;
  return isNarrow ? String(pid ?? title) : titleOf({ id: "", title, pid });
}
