// The frame of the page: header, navigation, and what it says about the connection.

import { ActionIcon, AppShell, Burger, Modal, useMantineColorScheme } from "@mantine/core";
import { Suspense, useEffect, useRef, useState, type ReactNode } from "react";
import { Link, Redirect, Route, Switch, useLocation } from "wouter";

import { Empty, Page, Since } from "./components/basics";
import { Boundary, lazyPart } from "./components/Boundary";
import { WhyProvider } from "./components/Why";
import { Icon } from "./icons";
import { useConnection, useTopic, type Connection } from "./live";
import { Overview } from "./pages/Overview";
import { Actors, Jobs, Objects, PlacementGroups, Workers } from "./pages/tables";
import type { Session } from "./types";

const Tasks = lazyPart(() => import("./pages/Tasks"));
const Logs = lazyPart(() => import("./pages/Logs"));
const DataRuns = lazyPart(() => import("./pages/DataRuns"));
const TrainRuns = lazyPart(() => import("./pages/TrainRuns"));
const TuneRuns = lazyPart(() => import("./pages/TuneRuns"));
const ServePage = lazyPart(() => import("./pages/Serve"));
const Models = lazyPart(() => import("./pages/Models"));

interface Place {
  path: string;
  name: string;
  icon: string;
  key: string;
  page: () => ReactNode;
}

const CORE: Place[] = [
  { path: "/", name: "Overview", icon: "overview", key: "o", page: () => <Overview /> },
  { path: "/tasks", name: "Tasks", icon: "tasks", key: "t", page: () => <Tasks /> },
  { path: "/actors", name: "Actors", icon: "actors", key: "a", page: () => <Actors /> },
  { path: "/objects", name: "Objects", icon: "objects", key: "b", page: () => <Objects /> },
  { path: "/placement_groups", name: "Placement groups", icon: "groups", key: "p", page: () => <PlacementGroups /> },
  { path: "/workers", name: "Workers", icon: "workers", key: "w", page: () => <Workers /> },
  { path: "/logs", name: "Logs", icon: "logs", key: "l", page: () => <Logs /> },
  { path: "/jobs", name: "Jobs", icon: "jobs", key: "j", page: () => <Jobs /> },
];

const LIBRARIES: Place[] = [
  { path: "/data", name: "Data runs", icon: "data", key: "d", page: () => <DataRuns /> },
  { path: "/train", name: "Train runs", icon: "train", key: "r", page: () => <TrainRuns /> },
  { path: "/tune", name: "Tune experiments", icon: "tune", key: "e", page: () => <TuneRuns /> },
  { path: "/serve", name: "Serve", icon: "serve", key: "s", page: () => <ServePage /> },
  { path: "/models", name: "Language models", icon: "models", key: "m", page: () => <Models /> },
];

/** Return whether Ray's state API has the content of a page: the others are in Ray's own dashboard. */
function isFilledByRay(place: Place): boolean {
  return place.path !== "/logs";
}

const PLACES = [...CORE, ...LIBRARIES];

export function App() {
  const [opened, setOpened] = useState(false);
  const [help, setHelp] = useState(false);
  const [location] = useLocation();
  const session = useTopic<Session>("/state/session").data;
  const connection = useConnection();
  const [section] = location.slice(1).split("/");

  useEffect(() => {
    setOpened(false);
    window.scrollTo(0, 0);
  }, [section]);
  useShortcuts(() => setHelp(true), opened ? () => setOpened(false) : undefined);

  const live = connection === "open" && session?.connected !== false;
  return (
    <WhyProvider>
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <AppShell
        header={{ height: 46 }}
        navbar={{ width: 204, breakpoint: "sm", collapsed: { mobile: !opened } }}
        padding={{ base: 12, sm: 18 }}
        transitionDuration={0}
      >
        <AppShell.Header
          px="md"
          style={{ display: "flex", alignItems: "center", gap: 14, background: "var(--surface)" }}
        >
          <Burger
            opened={opened}
            onClick={() => setOpened(!opened)}
            hiddenFrom="sm"
            size="sm"
            aria-label="Navigation"
            aria-expanded={opened}
          />
          <Link className="brand" href="/">
            <Mark />
            Skate
          </Link>
          <About session={session} />
          <span style={{ marginLeft: "auto", display: "flex", alignItems: "center", gap: 10 }}>
            <Live connection={connection} session={session} />
            <SchemeSwitch />
          </span>
        </AppShell.Header>
        <AppShell.Navbar
          p="xs"
          className="navbar"
          data-opened={opened || undefined}
          style={{ background: "var(--surface)", overflowY: "auto" }}
        >
          <nav className="nav" aria-label="Pages">
            <Places places={session?.engine === "ray" ? CORE.filter(isFilledByRay) : CORE} section={section ?? ""} />
            {session?.engine !== "ray" && (
              <>
                <div className="nav-group">Libraries</div>
                <Places places={LIBRARIES} section={section ?? ""} />
              </>
            )}
            {session?.ray_dashboard && (
              <a href={session.ray_dashboard} target="_blank" rel="noreferrer">
                Ray's dashboard ↗
              </a>
            )}
          </nav>
        </AppShell.Navbar>
        <AppShell.Main id="content" tabIndex={-1} style={{ outline: "none" }}>
          <Banner connection={connection} session={session} />
          <div className={live || connection === "connecting" ? undefined : "stale"}>
            <Boundary key={section}>
              <Suspense fallback={<div className="loading">Loading…</div>}>
                <Switch>
                  {PLACES.map((place) => (
                    <Route key={place.path} path={place.path === "/" ? "/" : `${place.path}/*?`}>
                      {place.page()}
                    </Route>
                  ))}
                  <Route path="/overview">
                    <Redirect to="/" />
                  </Route>
                  <Route>
                    <Page name="No such page">
                      <Empty>
                        There is no page at {location}. <Link href="/">Go to the overview</Link>
                      </Empty>
                    </Page>
                  </Route>
                </Switch>
              </Suspense>
            </Boundary>
          </div>
        </AppShell.Main>
      </AppShell>
      <Help opened={help} onClose={() => setHelp(false)} />
    </WhyProvider>
  );
}

function Places({ places, section }: { places: Place[]; section: string }) {
  return places.map((place) => (
    <Link key={place.path} href={place.path} aria-current={`/${section}` === place.path ? "page" : undefined}>
      <Icon name={place.icon} />
      {place.name}
    </Link>
  ));
}

function Mark() {
  return (
    <svg width="20" height="20" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#3b5bdb" />
      <path d="M8 22h12c3 0 4-2 4-4M9 10h8M9 16h11" stroke="#fff" strokeWidth="3" strokeLinecap="round" fill="none" />
    </svg>
  );
}

function About({ session }: { session: Session | undefined }) {
  if (!session) return null;
  return (
    <span className="session wide">
      <span className="nowrap">{session.engine} engine</span>
      {session.address && (
        <span className="ellipsis mono wider" title={session.address}>
          {session.address}
        </span>
      )}
      {session.pid !== null && <span className="nowrap">PID {session.pid}</span>}
      {session.connected && session.started !== null && (
        <span className="nowrap">
          up <Since time={session.started} />
        </span>
      )}
      <span className="nowrap wider">
        {session.version} · Python {session.python}
      </span>
    </span>
  );
}

function Live({ connection, session }: { connection: Connection; session: Session | undefined }) {
  const [tone, words] = status(connection, session);
  return (
    <span className="connection" data-tone={tone} role="status" data-testid="connection">
      <span className="dot" aria-hidden="true" />
      {words}
    </span>
  );
}

function status(connection: Connection, session: Session | undefined): [tone: string, words: string] {
  if (connection === "connecting") return ["wait", "Connecting"];
  if (connection !== "open") return ["bad", "Disconnected"];
  if (session?.connected === false) return ["bad", "Node ended"];
  return ["good", "Live"];
}

function Banner({ connection, session }: { connection: Connection; session: Session | undefined }) {
  const message = problem(connection, session);
  if (message === null) return null;
  return (
    <div className="banner" role="alert">
      <p>{message}</p>
    </div>
  );
}

function problem(connection: Connection, session: Session | undefined): ReactNode {
  if (connection === "unauthorized") {
    return (
      <>
        This page's token is not valid any more. Open the URL that <code>skate dashboard</code> or{" "}
        <code>skate.init</code> printed last.
      </>
    );
  }
  if (connection === "lost") {
    return "The connection to the dashboard's server is lost. The page shows the last state and reconnects by itself.";
  }
  if (session?.connected === false) {
    const reason = session.problem ?? "The node has ended.";
    return `${reason} The page shows the last state, and goes on when a node is running again.`;
  }
  return null;
}

const SCHEMES = { auto: "light", light: "dark", dark: "auto" } as const;
const SCHEME_NAMES = { auto: "as the system", light: "light", dark: "dark" };
const SCHEME_ICONS = { auto: "auto", light: "sun", dark: "moon" };

function SchemeSwitch() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const label = `Colours: ${SCHEME_NAMES[colorScheme]}. Change to ${SCHEME_NAMES[SCHEMES[colorScheme]]}`;
  return (
    <ActionIcon
      variant="default"
      size="md"
      aria-label={label}
      title={label}
      onClick={() => setColorScheme(SCHEMES[colorScheme])}
    >
      <Icon name={SCHEME_ICONS[colorScheme]} size={15} />
    </ActionIcon>
  );
}

/** Keys that work on every page: / to search, ? for help, g and a letter to go to a page. */
function useShortcuts(onHelp: () => void, onEscape: (() => void) | undefined): void {
  const [, navigate] = useLocation();
  const goingSince = useRef(0);
  useEffect(() => {
    const listener = (event: globalThis.KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.key === "Escape") onEscape?.();
      const target = event.target instanceof HTMLElement ? event.target : null;
      if (target?.closest("input, textarea, select, [role=dialog]")) return;
      if (Date.now() - goingSince.current < 1500) {
        goingSince.current = 0;
        const place = PLACES.find((each) => each.key === event.key);
        if (!place) return;
        event.preventDefault();
        event.stopImmediatePropagation();
        navigate(place.path);
      } else if (event.key === "/") {
        const field = document.querySelector<HTMLElement>("main [data-search]");
        if (!field) return;
        event.preventDefault();
        field.focus();
      } else if (event.key === "?") {
        onHelp();
      } else if (event.key === "g") {
        goingSince.current = Date.now();
      }
    };
    document.addEventListener("keydown", listener, true);
    return () => document.removeEventListener("keydown", listener, true);
  }, [navigate, onHelp, onEscape]);
}

function Help({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  return (
    <Modal opened={opened} onClose={onClose} title="Keys" closeButtonProps={{ "aria-label": "Close" }}>
      <dl className="facts">
        <dt>
          <kbd>/</kbd>
        </dt>
        <dd>search on this page</dd>
        <dt>
          <kbd>Esc</kbd>
        </dt>
        <dd>close what is open, clear the search</dd>
        {PLACES.map((place) => (
          <Shortcut key={place.path} place={place} />
        ))}
        <dt>
          <kbd>W</kbd> <kbd>S</kbd> <kbd>A</kbd> <kbd>D</kbd>
        </dt>
        <dd>zoom and pan the timeline</dd>
        <dt>
          <kbd>?</kbd>
        </dt>
        <dd>this list</dd>
      </dl>
    </Modal>
  );
}

function Shortcut({ place }: { place: Place }) {
  return (
    <>
      <dt>
        <kbd>g</kbd> <kbd>{place.key}</kbd>
      </dt>
      <dd>{place.name}</dd>
    </>
  );
}
