// The events of the timeline: all of them once, then only what is new.

import { useEffect, useRef, useState } from "react";

import { pathOf, useTopic, type Topic } from "../live";
import type { Session, Timeline, TimelineEvent, TimelineTrack } from "../types";

export const MOST_EVENTS = 20_000;
const OVERLAP_S = 5; // of the time asked for again, for events that were recorded late
const ADVANCE_S = 30; // the period is moved on so often, for the updates to stay small

/** Return the events since the start of the session, at most the newest `MOST_EVENTS`. */
export function useTimeline(): Topic<Timeline> {
  const [since, setSince] = useState<number | null>(null);
  const topic = useTopic<Timeline>(pathOf("/state/timeline", { since, limit: MOST_EVENTS }));
  const known = useRef(new Map<string, TimelineEvent>());
  const tracks = useRef(new Map<string, TimelineTrack>());
  const [merged, setMerged] = useState<Timeline | undefined>();
  const { data } = topic;
  const address = useTopic<Session>("/state/session").data?.address;
  const shown = useRef(address);

  useEffect(() => {
    if (shown.current !== undefined && shown.current !== address) {
      // Another node: its events have nothing to do with those of the last one.
      known.current.clear();
      tracks.current.clear();
      setSince(null);
      setMerged(undefined);
    }
    shown.current = address;
    if (!data) return;
    // Every update has all running events: one that is not in it has ended.
    for (const [key, event] of known.current) if (event.end === null) known.current.delete(key);
    for (const event of data.events) known.current.set(`${event.id} ${event.start}`, event);
    const dropped = trim(known.current);
    for (const track of data.tracks) tracks.current.set(track.id, track);
    setMerged((before) => ({
      ...data,
      tracks: [...tracks.current.values()].sort(byId),
      events: [...known.current.values()],
      dropped: Math.max(before?.dropped ?? 0, data.dropped) + dropped,
    }));
    if (since === null || data.now - since > ADVANCE_S) setSince(Math.floor(data.now - OVERLAP_S));
  }, [data, since, address]);

  return { data: merged, error: topic.error };
}

function byId(one: TimelineTrack, other: TimelineTrack): number {
  return one.id.localeCompare(other.id, "en", { numeric: true });
}

function trim(events: Map<string, TimelineEvent>): number {
  const excess = events.size - MOST_EVENTS;
  if (excess <= 0) return 0;
  const oldest = [...events.entries()].sort(([, one], [, other]) => one.start - other.start).slice(0, excess);
  for (const [key] of oldest) events.delete(key);
  return excess;
}
