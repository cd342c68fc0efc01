"""Which modules are imported in advance, and which workers are forked from the processes that have done so."""

from __future__ import annotations

import pytest

from skate._engine.local.state.preloads import MAX_ENDS, MAX_TEMPLATES, READILY_S, WORTHWHILE_S
from skate._engine.local.wire import messages as m
from tests.engine.local.state.world import Process, Worker, World


@pytest.fixture
def world() -> World:
    return World(cpus=4)


def loads(worker: Worker, *modules: str, seconds: float = 0.1) -> None:
    """Let a worker report what its last function has imported."""
    defined = [message for message in worker.heard if isinstance(message, m.Define)]
    worker.say(m.Imported(defined[-1].number, list(modules), seconds))


def create(driver: Process, name: str = "Actor") -> Worker:
    """Create an actor of a class, and start its worker."""
    driver.create(spec={"name": name})
    worker = driver.world.start_worker()
    worker.become()
    return worker


def template_of_next(driver: Process, name: str = "Actor", **spec: object) -> int:
    """Return the template of the worker that the next actor of a class gets."""
    driver.create(spec={"name": name, **spec})
    (start,) = driver.world.commanded(m.StartWorker)
    return start.template


def make(world: World) -> m.MakeTemplate:
    """Return the one template that the machine wants."""
    (made,) = world.commanded(m.MakeTemplate)
    return made


def test_what_an_actor_imports_is_imported_for_the_next_ones(world: World) -> None:
    driver = world.driver()
    loads(create(driver), "numpy", "pandas")
    made = make(world)
    assert (made.job, made.modules) == (driver.job, ["numpy", "pandas"])
    assert template_of_next(driver) == 0, "it is not ready, and nobody waits for it"
    world.tell(0, m.TemplateReady(made.number))
    assert template_of_next(driver) == made.number


def test_other_classes_and_jobs_do_not_get_the_modules(world: World) -> None:
    driver = world.driver()
    loads(create(driver), "numpy")
    world.tell(0, m.TemplateReady(make(world).number))
    assert template_of_next(driver, "Other") == 0
    assert template_of_next(world.driver()) == 0


def test_classes_with_the_same_imports_share_a_template(world: World) -> None:
    driver = world.driver()
    loads(create(driver), "numpy")
    loads(create(driver, "Other"), "numpy")
    made = make(world)
    world.tell(0, m.TemplateReady(made.number))
    assert template_of_next(driver) == template_of_next(driver, "Other") == made.number


def test_quick_imports_are_left_to_the_workers(world: World) -> None:
    driver = world.driver()
    loads(create(driver), "tiny", seconds=WORTHWHILE_S / 2)
    assert template_of_next(driver) == 0
    assert world.commanded(m.MakeTemplate) == []


def test_slow_imports_are_repeated_only_if_a_second_worker_starts(world: World) -> None:
    driver = world.driver()
    loads(create(driver), "torch", seconds=2 * READILY_S)
    assert world.commanded(m.MakeTemplate) == []
    assert template_of_next(driver) == 0
    assert make(world).modules == ["torch"]


def test_tasks_share_workers_and_need_no_template_before_a_second_one(world: World) -> None:
    driver = world.driver()
    function = driver.define()
    driver.submit(function)
    loads(world.start_worker(), "numpy")
    assert world.commanded(m.MakeTemplate) == []
    driver.submit(function)
    assert make(world).modules == ["numpy"]


def test_workers_with_accelerators_import_for_themselves() -> None:
    world = World(gpus=2)
    driver = world.driver()
    spec = {"resources": {"GPU": 1.0}}
    driver.create(spec=spec)
    worker = world.start_worker()
    worker.become()
    loads(worker, "torch")
    assert template_of_next(driver, **spec) == 0
    assert world.commanded(m.MakeTemplate) == []


def test_further_imports_make_a_further_template(world: World) -> None:
    driver = world.driver()
    loads(create(driver), "numpy")
    first = make(world)
    world.tell(0, m.TemplateReady(first.number))
    loads(create(driver), "pandas")  # an argument had values of pandas
    second = make(world)
    assert second.modules == ["numpy", "pandas"]
    world.tell(0, m.TemplateReady(second.number))
    assert template_of_next(driver) == second.number


def test_a_template_that_could_not_import_is_not_made_again(world: World) -> None:
    driver = world.driver()
    loads(create(driver), "crashes")
    world.tell(0, m.TemplateGone(make(world).number))
    assert template_of_next(driver) == 0
    assert world.commanded(m.MakeTemplate) == []


def test_a_template_that_was_killed_is_made_again_a_few_times(world: World) -> None:
    driver = world.driver()
    loads(create(driver), "numpy")
    for _ in range(MAX_ENDS):
        made = make(world)
        world.tell(0, m.TemplateReady(made.number))
        world.tell(0, m.TemplateGone(made.number))
        assert template_of_next(driver) == 0
    assert world.commanded(m.MakeTemplate) == []


def test_a_job_has_a_few_templates_at_most(world: World) -> None:
    driver = world.driver()
    for number in range(MAX_TEMPLATES + 2):
        loads(create(driver, f"Actor{number}"), f"module{number}")
    assert len(world.commanded(m.MakeTemplate)) == MAX_TEMPLATES


def test_the_templates_end_with_their_job(world: World) -> None:
    driver = world.driver()
    worker = create(driver)
    loads(worker, "numpy")
    made = make(world)
    driver.leave()
    assert world.commanded(m.DropTemplate) == []
    worker.leave()
    assert [command.number for command in world.commanded(m.DropTemplate)] == [made.number]
    world.tell(0, m.TemplateGone(made.number))


def test_nothing_is_imported_in_advance_if_it_is_turned_off() -> None:
    world = World(learns_imports=False)
    driver = world.driver()
    loads(create(driver), "numpy")
    assert template_of_next(driver) == 0
    assert world.commanded(m.MakeTemplate) == []
