"""What workers import when they load a function or class, and preloaded templates that have imported it before.

A worker reports the modules that its first load of a function has imported. Later workers that will probably load the
same function are forked from a preloaded template with these modules, once it is ready: they never wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._engine.local.state.records import ACTOR, HOST, Key
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

WORTHWHILE_S = 0.01  # processor time of a load below which a template would not pay
# Processor time of a load up to which a template is made at the first report of an actor, whose process hosts no
# other. Beyond, and for tasks, which share workers, it is made when a second worker starts.
READILY_S = 0.5
MAX_TEMPLATES = 4  # of a job
MAX_ENDS = 3  # ends of a template, after which it is not made again

_Function = tuple[bytes, str, bytes]  # job, environment, and the key of the function
_Modules = tuple[str, ...]


class _Template:
    """A preloaded template, or the request for one."""

    __slots__ = ("ends", "environment", "is_ready", "job", "modules", "number")

    def __init__(self, job: bytes, environment: str, modules: _Modules) -> None:
        self.job = job
        self.environment = environment
        self.modules = modules
        self.number = 0  # 0: it does not exist
        self.is_ready = False
        self.ends = 0


class Preloads:
    """Decides which modules to preload, and which workers to fork from which template."""

    def __init__(self, machine: Machine, learns: bool) -> None:
        self._machine = machine
        self._learns = learns
        self._modules_of: dict[_Function, _Modules] = {}
        self._templates: dict[tuple[bytes, str, _Modules], _Template] = {}
        self._by_number: dict[int, _Template] = {}
        self._last = 0

    def imported(self, source: int, message: m.Imported) -> None:
        """Handle a worker's report of the modules that loading a function has imported."""
        machine = self._machine
        peer = machine.peers[source]
        template = machine.scheduler.templates.get(message.template)
        if not self._learns or peer.for_devices or template is None or message.seconds < WORTHWHILE_S:
            return
        function = (peer.job, peer.environment, template.spec.function)
        forked_from = self._by_number.get(peer.preloaded)
        known = self._modules_of.get(function) or (forked_from.modules if forked_from is not None else ())
        modules = tuple(dict.fromkeys((*known, *message.modules)))
        if modules == known:
            return
        self._modules_of[function] = modules
        if peer.state is ACTOR and message.seconds <= READILY_S:
            self._template(function)

    def template_for(self, key: Key, function: bytes) -> int:
        """Return the number of the template to fork a worker from that will load a function; 0 for none."""
        job, environment, for_devices = key
        # Modules may look at the accelerators when they are imported, and each worker has its own.
        if for_devices or (job, environment, function) not in self._modules_of:
            return 0
        template = self._template((job, environment, function))
        return template.number if template is not None and template.is_ready else 0

    def _template(self, function: _Function) -> _Template | None:
        """Return the template for a function, which is requested if it does not exist; None at a limit."""
        job, environment, _ = function
        modules = self._modules_of[function]
        template = self._templates.get((job, environment, modules))
        if template is None:
            if sum(each.job == job for each in self._templates.values()) >= MAX_TEMPLATES:
                return None
            template = self._templates[job, environment, modules] = _Template(job, environment, modules)
        if not template.number and template.ends < MAX_ENDS:
            self._last += 1
            template.number = self._last
            self._by_number[template.number] = template
            self._machine.send(HOST, m.MakeTemplate(template.number, environment, job, list(modules)))
        return template

    def ready(self, number: int) -> None:
        """Handle a template that has imported its modules."""
        template = self._by_number.get(number)
        if template is not None:
            template.is_ready = True

    def gone(self, number: int) -> None:
        """Handle the end of a template. One that could not import its modules is not made again."""
        template = self._by_number.pop(number, None)
        if template is None:
            return
        template.ends = template.ends + 1 if template.is_ready else MAX_ENDS
        template.number = 0
        template.is_ready = False

    def forget_job(self, job: bytes) -> None:
        """End the templates of an ended job without processes."""
        self._modules_of = {key: modules for key, modules in self._modules_of.items() if key[0] != job}
        for key, template in list(self._templates.items()):
            if template.job != job:
                continue
            del self._templates[key]
            if self._by_number.pop(template.number, None) is not None:
                self._machine.send(HOST, m.DropTemplate(template.number))
