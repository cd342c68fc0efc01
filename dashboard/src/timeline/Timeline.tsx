// The timeline of tasks: one track per worker, with zoom and pan by wheel, drag, pinch and keyboard.

import { Button, Switch, useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";

import { Empty, Panel, Pending, State } from "../components/basics";
import * as format from "../format";
import { useConnection } from "../live";
import type { TimelineEvent } from "../types";
import { arrange } from "./layout";
import { useTimeline } from "./store";
import { TimelineView, type Hit } from "./view";

const FRAME_MS = 100; // between frames while the timeline follows the clock
const CODE = "@skate.remote\ndef square(x):\n    return x * x\n\nskate.get([square.remote(i) for i in range(100)])";

export function Timeline({ onOpen }: { onOpen: (id: string) => void }) {
  const topic = useTimeline();
  const { data } = topic;
  const [follow, setFollow] = useState(true);
  const view = useRef<TimelineView | null>(null);
  const empty = data !== undefined && data.events.length === 0;
  return (
    <Panel
      name="Timeline"
      about={data && !empty && `${format.count(data.events.length)} events${older(data.dropped)}`}
      tools={
        !empty && (
          <>
            <Switch
              size="xs"
              label="Follow"
              checked={follow}
              onChange={(event) => view.current?.setFollow(event.currentTarget.checked)}
            />
            <Button size="compact-xs" variant="default" onClick={() => view.current?.showAll()}>
              Show all
            </Button>
            <Button size="compact-xs" variant="default" aria-label="Zoom in" onClick={() => view.current?.zoom(0.5)}>
              +
            </Button>
            <Button size="compact-xs" variant="default" aria-label="Zoom out" onClick={() => view.current?.zoom(2)}>
              −
            </Button>
          </>
        )
      }
      bare
    >
      <Pending topic={topic} what="The timeline" />
      {empty && (
        <Empty code={CODE}>No task has run yet. Each task is drawn on the track of the worker that runs it:</Empty>
      )}
      {data && !empty && <Canvas data={data} viewRef={view} onFollow={setFollow} onOpen={onOpen} />}
    </Panel>
  );
}

function older(dropped: number): string {
  return dropped > 0 ? `, ${format.count(dropped)} older ones are no longer kept` : "";
}

interface CanvasProps {
  data: NonNullable<ReturnType<typeof useTimeline>["data"]>;
  viewRef: { current: TimelineView | null };
  onFollow: (follow: boolean) => void;
  onOpen: (id: string) => void;
}

function Canvas({ data, viewRef, onFollow, onOpen }: CanvasProps) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [tip, setTip] = useState<Hit | null>(null);
  const [said, setSaid] = useState("");
  const scheme = useComputedColorScheme();
  const connection = useConnection();
  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const moved = useRef(0);

  useEffect(() => {
    if (!canvas.current || !box.current) return;
    const view = new TimelineView(canvas.current);
    viewRef.current = view;
    view.onChange = () => onFollow(view.follow);
    const frame = box.current;
    // The range in view, for programs that read the page.
    view.onDraw = () => Object.assign(frame.dataset, { from: view.from, to: view.to });
    const sizes = new ResizeObserver(() => view.resize(frame.clientWidth));
    sizes.observe(frame);
    // React listens to wheels passively, and the page would scroll.
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.pan(view.secondsOf(sideways));
      else view.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) / 300), view.timeAt(offset(frame, event).x));
    };
    frame.addEventListener("wheel", wheel, { passive: false });
    return () => {
      sizes.disconnect();
      frame.removeEventListener("wheel", wheel);
      view.dispose();
      viewRef.current = null;
    };
  }, [viewRef, onFollow]);

  useEffect(() => {
    viewRef.current?.update(arrange(data.tracks, data.events), data.now);
  }, [data, viewRef]);

  useEffect(() => {
    viewRef.current?.recolor();
  }, [scheme, viewRef]);

  useEffect(() => {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (connection !== "open" || still) return; // then it moves with the data only
    const timer = setInterval(() => viewRef.current?.follow && viewRef.current.plan(), FRAME_MS);
    return () => clearInterval(timer);
  }, [connection, viewRef]);

  const down = (event: PointerEvent<HTMLDivElement>) => {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (pointers.current.size === 1) moved.current = 0;
    setTip(null);
  };

  const move = (event: PointerEvent<HTMLDivElement>) => {
    const view = viewRef.current;
    if (!view) return;
    const before = pointers.current.get(event.pointerId);
    if (!before) {
      const place = offset(event.currentTarget, event);
      const hit = view.hit(place.x, place.y);
      view.hover(hit);
      setTip(hit && { event: hit, ...place });
      return;
    }
    const others = [...pointers.current].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const [dx, dy] = [event.clientX - before.x, event.clientY - before.y];
    moved.current += Math.abs(dx) + Math.abs(dy);
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (moved.current < 4) return;
    const other = others[0];
    if (other) {
      const apart = Math.max(12, Math.abs(before.x - other.x));
      const left = event.currentTarget.getBoundingClientRect().left;
      view.zoom(
        apart / Math.max(12, Math.abs(event.clientX - other.x)),
        view.timeAt((event.clientX + other.x) / 2 - left),
      );
      return;
    }
    if (dx !== 0) view.pan(-view.secondsOf(dx));
    if (dy !== 0) view.scroll(-dy);
  };

  const up = (event: PointerEvent<HTMLDivElement>) => {
    const view = viewRef.current;
    pointers.current.delete(event.pointerId);
    if (!view || moved.current >= 4) return;
    const place = offset(event.currentTarget, event);
    const hit = view.hit(place.x, place.y);
    view.select(hit);
    if (hit) onOpen(hit.id);
  };

  const key = (event: KeyboardEvent<HTMLDivElement>) => {
    const view = viewRef.current;
    if (!view || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = KEYS[event.shiftKey && event.key.startsWith("Arrow") ? `Shift+${event.key}` : event.key];
    if (event.key === "Enter" && view.selected) onOpen(view.selected.id);
    else if (act) act(view);
    else return;
    event.preventDefault();
    setSaid(view.selected ? describe(view.selected, view) : "");
  };

  return (
    <>
      <div
        ref={box}
        className="timeline"
        role="application"
        tabIndex={0}
        aria-label="Timeline of tasks"
        aria-roledescription="timeline"
        aria-describedby="timeline-keys"
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={(event) => pointers.current.delete(event.pointerId)}
        onPointerLeave={() => {
          viewRef.current?.hover(null);
          setTip(null);
        }}
        onKeyDown={key}
      >
        <canvas ref={canvas} />
        {tip && <Tip hit={tip} box={box.current} view={viewRef.current} />}
      </div>
      <div className="table-foot keys" id="timeline-keys">
        <span className="narrow">Drag to pan, pinch to zoom, tap a task to open it.</span>
        <span className="wide">
          <kbd>wheel</kbd> or <kbd>W</kbd> <kbd>S</kbd> zoom
        </span>
        <span className="wide">
          <kbd>drag</kbd> or <kbd>A</kbd> <kbd>D</kbd> pan
        </span>
        <span className="wide">
          <kbd>F</kbd> shows all
        </span>
        <span className="wide">
          <kbd>Shift</kbd> + arrows select, <kbd>Enter</kbd> opens
        </span>
      </div>
      <div className="hidden-visually" aria-live="polite">
        {said}
      </div>
    </>
  );
}

const KEYS: Record<string, (view: TimelineView) => void> = {
  ArrowLeft: (view) => view.pan(-view.span * 0.15),
  ArrowRight: (view) => view.pan(view.span * 0.15),
  a: (view) => view.pan(-view.span * 0.15),
  d: (view) => view.pan(view.span * 0.15),
  w: (view) => view.zoom(0.7),
  s: (view) => view.zoom(1 / 0.7),
  "+": (view) => view.zoom(0.7),
  "=": (view) => view.zoom(0.7),
  "-": (view) => view.zoom(1 / 0.7),
  ArrowUp: (view) => view.scroll(-40),
  ArrowDown: (view) => view.scroll(40),
  f: (view) => view.showAll(),
  "0": (view) => view.showAll(),
  End: (view) => view.setFollow(true),
  "Shift+ArrowLeft": (view) => view.move(-1, 0),
  "Shift+ArrowRight": (view) => view.move(1, 0),
  "Shift+ArrowUp": (view) => view.move(0, -1),
  "Shift+ArrowDown": (view) => view.move(0, 1),
};

function offset(element: Element, event: { clientX: number; clientY: number }): { x: number; y: number } {
  const box = element.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function time(event: TimelineEvent, view: TimelineView | null): string {
  return format.duration((event.end ?? view?.now ?? event.start) - event.start);
}

function describe(event: TimelineEvent, view: TimelineView): string {
  return `${event.name}, ${format.words(event.state)}, ${time(event, view)}, on ${view.trackTitle(event)}`;
}

function Tip({ hit, box, view }: { hit: Hit; box: HTMLElement | null; view: TimelineView | null }) {
  const [width, height] = [box?.clientWidth ?? 0, box?.clientHeight ?? 0];
  const across = hit.x > width * 0.6 ? { right: width - hit.x + 8 } : { left: hit.x + 12 };
  const down = hit.y > height * 0.55 ? { bottom: height - hit.y + 8 } : { top: hit.y + 14 };
  return (
    <div className="tip" style={{ ...across, ...down }}>
      <strong>{hit.event.name}</strong>
      <br />
      {time(hit.event, view)} · <State value={hit.event.state} />
      <br />
      <span className="muted">
        {format.clock(hit.event.start)} · {view?.trackTitle(hit.event)}
      </span>
    </div>
  );
}
