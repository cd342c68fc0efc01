"""All messages between the driver, the node and the workers.

Messages are also the events and commands of the state machine, so that tests use the same messages as the wire. They
are encoded as MessagePack arrays, several messages to a frame.

The modules of messages do not postpone their annotations: msgspec would evaluate each of them from text, in every
process that starts.
"""

from skate._engine.local.wire.messages.actors import (
    ActorExit,
    ActorUpdate,
    ActorWatch,
    Become,
    Call,
    CallItem,
    CancelCall,
    CreateActor,
    CreateGroup,
    Introduce,
    KillActor,
    RemoveGroup,
    Reply,
    ReplyVia,
    WatchGroup,
)
from skate._engine.local.wire.messages.host import (
    DeleteSegment,
    DeleteSpilled,
    DropTemplate,
    EnvironmentReady,
    KillProcess,
    MakeTemplate,
    MemoryPressure,
    Restore,
    Restored,
    Spill,
    Spilled,
    StartWorker,
    Stop,
    TemplateGone,
    TemplateReady,
    WorkerGone,
)
from skate._engine.local.wire.messages.life import (
    Answer,
    Ask,
    Events,
    Exit,
    FlushOutput,
    Goodbye,
    Hello,
    Output,
    PrivateObjects,
    Question,
    SendEvents,
    SendObjects,
    Stopped,
    Welcome,
)
from skate._engine.local.wire.messages.objects import (
    Abandon,
    Allocate,
    Allocated,
    DropSegments,
    Free,
    Hold,
    Inquire,
    Located,
    Pin,
    Ready,
    Register,
    Release,
    Subscribe,
    Tidy,
    Unpin,
)
from skate._engine.local.wire.messages.tasks import (
    Blocked,
    Cancel,
    CancelRunning,
    Consumed,
    Deadlock,
    Define,
    Done,
    DoneMany,
    Export,
    HandBack,
    Imported,
    Item,
    PrivateResult,
    Recall,
    Run,
    RunMany,
    Stalled,
    Submit,
    SubmitMany,
    Unblocked,
    Values,
    WaitProbe,
    WaitReport,
)
from skate._engine.local.wire.messages.values import (
    DYNAMIC,
    STREAMING,
    ActorOptions,
    Argument,
    Message,
    Mutable,
    Result,
    TaskTemplate,
)

WIRE = (
    Hello
    | Welcome
    | Goodbye
    | Exit
    | Ask
    | Answer
    | Events
    | SendEvents
    | SendObjects
    | PrivateObjects
    | Output
    | FlushOutput
    | Stopped
    | Define
    | Export
    | Submit
    | SubmitMany
    | Run
    | RunMany
    | Done
    | DoneMany
    | Values
    | PrivateResult
    | Item
    | Consumed
    | Recall
    | HandBack
    | Imported
    | Cancel
    | CancelRunning
    | Blocked
    | Unblocked
    | Deadlock
    | Stalled
    | WaitProbe
    | WaitReport
    | Ready
    | Register
    | Hold
    | Release
    | Subscribe
    | Pin
    | Unpin
    | Located
    | Allocate
    | Allocated
    | Abandon
    | DropSegments
    | Tidy
    | Free
    | Inquire
    | CreateActor
    | Become
    | ActorWatch
    | ActorUpdate
    | KillActor
    | ActorExit
    | Call
    | Reply
    | ReplyVia
    | CancelCall
    | CallItem
    | Introduce
    | CreateGroup
    | RemoveGroup
    | WatchGroup
)

__all__ = [
    "DYNAMIC",
    "STREAMING",
    "WIRE",
    "Abandon",
    "ActorExit",
    "ActorOptions",
    "ActorUpdate",
    "ActorWatch",
    "Allocate",
    "Allocated",
    "Answer",
    "Argument",
    "Ask",
    "Become",
    "Blocked",
    "Call",
    "CallItem",
    "Cancel",
    "CancelCall",
    "CancelRunning",
    "Consumed",
    "CreateActor",
    "CreateGroup",
    "Deadlock",
    "Define",
    "DeleteSegment",
    "DeleteSpilled",
    "Done",
    "DoneMany",
    "DropSegments",
    "DropTemplate",
    "EnvironmentReady",
    "Events",
    "Exit",
    "Export",
    "FlushOutput",
    "Free",
    "Goodbye",
    "HandBack",
    "Hello",
    "Hold",
    "Imported",
    "Inquire",
    "Introduce",
    "Item",
    "KillActor",
    "KillProcess",
    "Located",
    "MakeTemplate",
    "MemoryPressure",
    "Message",
    "Mutable",
    "Output",
    "Pin",
    "PrivateObjects",
    "PrivateResult",
    "Question",
    "Ready",
    "Recall",
    "Register",
    "Release",
    "RemoveGroup",
    "Reply",
    "ReplyVia",
    "Restore",
    "Restored",
    "Result",
    "Run",
    "RunMany",
    "SendEvents",
    "SendObjects",
    "Spill",
    "Spilled",
    "Stalled",
    "StartWorker",
    "Stop",
    "Stopped",
    "Submit",
    "SubmitMany",
    "Subscribe",
    "TaskTemplate",
    "TemplateGone",
    "TemplateReady",
    "Tidy",
    "Unblocked",
    "Unpin",
    "Values",
    "WaitProbe",
    "WaitReport",
    "WatchGroup",
    "Welcome",
    "WorkerGone",
]
