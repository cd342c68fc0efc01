// The timeline on its canvas: drawing, zoom and pan. React only hands it data and listens.

import * as format from "../format";
import { SERIES } from "../theme";
import type { TimelineEvent } from "../types";
import { ROW, endOf, firstVisible, labelOf, tickStep, titleOf, type Layout } from "./layout";

const AXIS = 24;
const SHORTEST_SPAN = 1e-5;
const LONGEST_SPAN = 7 * 86400;
const TALLEST = 440;

interface Palette {
  text: string;
  muted: string;
  line: string;
  surface: string;
  ground: string;
  accent: string;
  bad: string;
}

export interface Hit {
  event: TimelineEvent;
  x: number;
  y: number;
}

export class TimelineView {
  layout: Layout = { tracks: [], height: 0, first: null, last: null };
  from = 0;
  to = 1;
  follow = true;
  selected: TimelineEvent | null = null;
  onChange: () => void = () => undefined;
  onDraw: () => void = () => undefined;

  private width = 0;
  private scrollY = 0;
  private offset = 0; // of the server's clock
  private started = false;
  private palette: Palette | undefined;
  private frame = 0;
  private hovered: TimelineEvent | null = null;
  private colors = new Map<string, string>();

  constructor(private readonly canvas: HTMLCanvasElement) {}

  get gutter(): number {
    return this.width < 600 ? 84 : 168;
  }

  get height(): number {
    return AXIS + Math.min(TALLEST, Math.max(80, this.layout.height));
  }

  get now(): number {
    return Date.now() / 1000 + this.offset;
  }

  get span(): number {
    return this.to - this.from;
  }

  update(tracks: Layout, now: number): void {
    this.layout = tracks;
    this.offset = now - Date.now() / 1000;
    if (!this.started && tracks.first !== null) {
      this.started = true;
      this.showRecent();
    }
    this.resize(this.width);
  }

  resize(width: number): void {
    this.width = width;
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.max(1, Math.round(width * scale)), Math.round(this.height * scale)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${this.height}px`;
    }
    this.clampScroll();
    this.draw();
  }

  /** Read the colours again, after a change between light and dark. */
  recolor(): void {
    this.palette = undefined;
    this.plan();
  }

  plan(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
  }

  // What is in view

  showRecent(): void {
    const { first, last } = this.layout;
    if (first === null || last === null) return;
    const now = this.now;
    const running = this.layout.tracks.some((track) => track.lanes.some((lane) => lane.events.at(-1)?.end === null));
    if (running || now - last < 30) {
      const span = Math.min(60, Math.max(2, now - first));
      this.setRange(now - span, now, true);
    } else {
      this.showAll();
    }
  }

  showAll(): void {
    const { first, last } = this.layout;
    if (first === null || last === null) return;
    const margin = Math.max(1e-4, (last - first) * 0.02);
    this.setRange(first - margin, last + margin, false);
  }

  setFollow(follow: boolean): void {
    this.setRange(follow ? this.now - this.span : this.from, follow ? this.now : this.to, follow);
  }

  zoom(factor: number, at?: number): void {
    const span = Math.min(LONGEST_SPAN, Math.max(SHORTEST_SPAN, this.span * factor));
    const anchor = this.follow ? this.to : (at ?? (this.from + this.to) / 2);
    const share = (anchor - this.from) / this.span;
    this.setRange(anchor - share * span, anchor + (1 - share) * span, this.follow);
  }

  pan(seconds: number): void {
    this.setRange(this.from + seconds, this.to + seconds, false);
  }

  scroll(pixels: number): void {
    this.scrollY += pixels;
    this.clampScroll();
    this.plan();
  }

  timeAt(x: number): number {
    return this.from + ((x - this.gutter) / Math.max(1, this.width - this.gutter)) * this.span;
  }

  secondsOf(pixels: number): number {
    return (pixels / Math.max(1, this.width - this.gutter)) * this.span;
  }

  // Events

  hit(x: number, y: number): TimelineEvent | null {
    if (x < this.gutter || y < AXIS) return null;
    const inside = y - AXIS + this.scrollY;
    for (const track of this.layout.tracks) {
      for (const lane of track.lanes) {
        if (inside < lane.y || inside >= lane.y + ROW) continue;
        const slack = this.secondsOf(2);
        const time = this.timeAt(x);
        let best: TimelineEvent | null = null;
        for (let i = firstVisible(lane.events, time - slack); i < lane.events.length; i += 1) {
          const event = lane.events[i];
          if (!event || event.start > time + slack) break;
          if (Math.min(endOf(event), this.now) >= time - slack) best = event;
        }
        return best;
      }
    }
    return null;
  }

  hover(event: TimelineEvent | null): void {
    if (event === this.hovered) return;
    this.hovered = event;
    this.plan();
  }

  select(event: TimelineEvent | null): void {
    this.selected = event;
    if (event) this.reveal(event);
    this.plan();
  }

  /** Select the next event of the track, or the first in view of another track. */
  move(alongTime: number, acrossTracks: number): void {
    const tracks = this.layout.tracks.filter((track) => track.lanes.length > 0);
    const here = tracks.findIndex((track) => track.track.id === this.selected?.track);
    if (here < 0 || !this.selected) {
      this.select(tracks[0] ? nearest(eventsOf(tracks[0].lanes), this.from) : null);
      return;
    }
    if (acrossTracks) {
      const track = tracks[Math.max(0, Math.min(tracks.length - 1, here + acrossTracks))];
      if (track) this.select(nearest(eventsOf(track.lanes), this.selected.start));
      return;
    }
    const events = eventsOf(tracks[here]?.lanes ?? []);
    const at = events.findIndex((event) => event.id === this.selected?.id && event.start === this.selected.start);
    this.select(events[Math.max(0, Math.min(events.length - 1, at + alongTime))] ?? this.selected);
  }

  trackTitle(event: TimelineEvent): string {
    const found = this.layout.tracks.find((track) => track.track.id === event.track);
    return found ? titleOf(found.track) : event.track;
  }

  private reveal(event: TimelineEvent): void {
    if (event.start > this.to || Math.min(endOf(event), this.now) < this.from) {
      this.setRange(event.start - this.span * 0.2, event.start + this.span * 0.8, false);
    }
    const track = this.layout.tracks.find((each) => each.track.id === event.track);
    if (!track) return;
    const visible = this.height - AXIS;
    if (track.y < this.scrollY) this.scrollY = track.y;
    else if (track.y + track.height > this.scrollY + visible) this.scrollY = track.y + track.height - visible;
    this.clampScroll();
  }

  private setRange(from: number, to: number, follow: boolean): void {
    this.from = from;
    this.to = to;
    if (this.follow !== follow) {
      this.follow = follow;
      this.onChange();
    }
    this.plan();
  }

  private clampScroll(): void {
    const most = Math.max(0, this.layout.height - (this.height - AXIS));
    this.scrollY = Math.max(0, Math.min(most, this.scrollY));
  }

  // Drawing

  draw(): void {
    const context = this.canvas.getContext("2d");
    if (!context || this.width === 0) return;
    if (this.follow && this.started) {
      const span = this.span;
      this.to = this.now;
      this.from = this.to - span;
    }
    const palette = (this.palette ??= readPalette(this.canvas));
    const scale = window.devicePixelRatio || 1;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, this.width, this.height);
    const style = getComputedStyle(this.canvas);
    context.font = `12px ${style.fontFamily}`;
    context.textBaseline = "middle";
    this.drawAxis(context, palette);
    context.save();
    context.beginPath();
    context.rect(0, AXIS, this.width, this.height - AXIS);
    context.clip();
    context.translate(0, AXIS - this.scrollY);
    this.drawTracks(context, palette);
    context.restore();
    this.drawNow(context, palette);
    this.onDraw();
  }

  private x(time: number): number {
    return this.gutter + ((time - this.from) / this.span) * (this.width - this.gutter);
  }

  private drawAxis(context: CanvasRenderingContext2D, palette: Palette): void {
    const step = tickStep(this.span, this.width - this.gutter);
    context.strokeStyle = palette.line;
    context.fillStyle = palette.muted;
    context.lineWidth = 1;
    context.textAlign = "left";
    for (let tick = Math.ceil(this.from / step) * step; tick < this.to; tick += step) {
      const x = Math.round(this.x(tick)) + 0.5;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, this.height);
      context.stroke();
      if (x < this.width - 40) context.fillText(tickLabel(tick, step), x + 4, AXIS / 2);
    }
    context.fillStyle = palette.surface;
    context.fillRect(0, 0, this.gutter, AXIS);
    context.fillStyle = palette.muted;
    context.fillText(format.duration(this.span), 14, AXIS / 2);
    context.beginPath();
    context.moveTo(0, AXIS - 0.5);
    context.lineTo(this.width, AXIS - 0.5);
    context.stroke();
  }

  private drawTracks(context: CanvasRenderingContext2D, palette: Palette): void {
    const bottom = this.scrollY + this.height;
    context.save();
    context.beginPath();
    context.rect(this.gutter, this.scrollY, this.width - this.gutter, this.height);
    context.clip();
    for (const track of this.layout.tracks) {
      if (track.y + track.height < this.scrollY || track.y > bottom) continue;
      for (const lane of track.lanes) this.drawLane(context, palette, lane.events, lane.y);
    }
    context.restore();
    for (const track of this.layout.tracks) {
      if (track.y + track.height < this.scrollY || track.y > bottom) continue;
      context.fillStyle = palette.text;
      context.textAlign = "left";
      context.fillText(
        fitted(labelOf(track.track, this.gutter < 100), this.gutter - 20, context),
        14,
        track.y + ROW / 2,
      );
      context.fillStyle = palette.line;
      context.fillRect(0, track.y + track.height + 2, this.width, 1);
    }
  }

  private drawLane(context: CanvasRenderingContext2D, palette: Palette, events: TimelineEvent[], y: number): void {
    const now = this.now;
    let drawnTo = -1;
    for (let i = firstVisible(events, this.from); i < events.length; i += 1) {
      const event = events[i];
      if (!event || event.start > this.to) break;
      const end = Math.min(event.end ?? now, this.to);
      if (end < this.from) continue;
      const left = Math.max(this.gutter - 4, this.x(event.start));
      const right = Math.max(left + 1, this.x(end));
      const failed = event.state === "FAILED";
      if (right <= drawnTo + 0.5 && !failed) continue; // lies within a pixel that is already drawn
      drawnTo = right;
      this.drawEvent(context, palette, event, left, right - left, y, failed);
    }
  }

  private drawEvent(
    context: CanvasRenderingContext2D,
    palette: Palette,
    event: TimelineEvent,
    x: number,
    width: number,
    y: number,
    failed: boolean,
  ): void {
    const color = failed ? palette.bad : this.color(event.name);
    const height = ROW - 2;
    if (width < 5) {
      context.fillStyle = color;
      context.fillRect(x, y, Math.max(1, width - 0.5), height);
    } else {
      context.fillStyle = color;
      context.globalAlpha = event === this.hovered ? 0.5 : 0.3;
      context.fillRect(x, y, width - 1, height);
      context.globalAlpha = 1;
      context.fillRect(x, y, 2, height);
      if (event.end === null) context.fillRect(x, y + height - 2, width - 1, 2);
      if (width > 34) {
        context.fillStyle = palette.text;
        context.textAlign = "left";
        context.fillText(
          fitted(failed ? `✕ ${event.name}` : event.name, width - 12, context),
          x + 6,
          y + height / 2 + 0.5,
        );
      }
    }
    const selected = this.selected;
    if (selected && selected.id === event.id && selected.start === event.start) {
      context.strokeStyle = palette.accent;
      context.lineWidth = 2;
      context.strokeRect(x, y - 0.5, Math.max(3, width - 1), height + 1);
      context.lineWidth = 1;
    }
  }

  private drawNow(context: CanvasRenderingContext2D, palette: Palette): void {
    const x = Math.round(this.x(this.now)) - 0.5;
    if (x < this.gutter || x > this.width) return;
    context.strokeStyle = palette.accent;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, this.height);
    context.stroke();
  }

  private color(name: string): string {
    let color = this.colors.get(name);
    if (color === undefined) {
      color = SERIES[this.colors.size % (SERIES.length - 1)] ?? "#4c6ef5"; // the last is like the colour of failures
      this.colors.set(name, color);
    }
    return color;
  }
}

function eventsOf(lanes: { events: TimelineEvent[] }[]): TimelineEvent[] {
  return lanes.flatMap((lane) => lane.events).sort((one, other) => one.start - other.start);
}

function nearest(events: TimelineEvent[], time: number): TimelineEvent | null {
  return events.find((event) => endOf(event) >= time) ?? events.at(-1) ?? null;
}

function readPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const of = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: of("--mantine-color-text"),
    muted: of("--mantine-color-dimmed"),
    line: of("--line"),
    surface: of("--surface"),
    ground: of("--mantine-color-body"),
    accent: of("--accent"),
    bad: of("--bad"),
  };
}

function fitted(text: string, width: number, context: CanvasRenderingContext2D): string {
  const room = Math.floor(width / 6.2);
  if (text.length <= room || context.measureText(text).width <= width) return text;
  return room > 2 ? `${text.slice(0, room - 1)}…` : "";
}

function tickLabel(time: number, step: number): string {
  const date = new Date(time * 1000);
  const clock = date.toLocaleTimeString("en-GB");
  if (step >= 60) return clock.slice(0, 5);
  if (step >= 1) return clock;
  const digits = Math.min(6, Math.max(1, Math.ceil(-Math.log10(step))));
  return `:${(((time % 60) + 60) % 60).toFixed(digits).padStart(digits + 3, "0")}`;
}
