"""Which task runs where: workers, sending ahead, lending CPUs, fairness, devices, environments."""

from __future__ import annotations

import pytest

from skate._engine.local.state.records import IDLE, LEASED, LEAVING
from skate._engine.local.state.scheduler import IDLE_WORKER_TIMEOUT_S
from skate._engine.local.state.starts import KILLED, MAX_START_FAILURES
from skate._engine.local.state.tasks import MAX_RETRY_DELAY_S
from skate._engine.local.state.tasks_ahead import MAX_TASKS_AHEAD, RECALL_TIMEOUT_S
from skate._engine.local.wire import messages as m
from skate.exceptions import RaySystemError, RuntimeEnvSetupError, WorkerCrashedError
from tests.engine.local.state.world import Process, Worker, World, result

SHORT = 0.0
LONG = 1.0


@pytest.fixture
def world() -> World:
    return World(cpus=1)


def short_tasks(driver: Process, **spec: object) -> tuple[Worker, int]:
    """Return a worker, and a template whose tasks are sent to it ahead of time."""
    template = driver.define(name="short", **spec)
    first = driver.submit(template)
    worker = driver.world.start_worker()
    worker.finish(first, seconds=SHORT)
    return worker, template


def tasks_of(driver: Process, seconds: float) -> tuple[Worker, int]:
    """Return a worker, and a template whose tasks take some seconds."""
    template = driver.define(name="timed")
    first = driver.submit(template)
    worker = driver.world.start_worker()
    worker.finish(first, seconds=seconds)
    return worker, template


def busy_workers(driver: Process, count: int, *, seconds: float) -> tuple[int, list[Worker]]:
    """Return a template whose tasks take some seconds, and workers that run one each."""
    template = driver.define(name="timed")
    for _ in range(count):
        driver.submit(template)
    workers = driver.world.start_workers()
    for worker in workers:
        worker.finish(worker.tasks[0], seconds=seconds)
    for _ in range(count):
        driver.submit(template)
    return template, workers


def state_of(worker: Worker) -> str:
    return worker.world.machine.peers[worker.number].state


# ---------------------------------------------------------------- workers


def test_as_many_workers_are_started_as_can_run_at_once() -> None:
    world = World(cpus=3)
    driver = world.driver()
    for _ in range(10):
        driver.submit()
    assert len(world.commanded(m.StartWorker)) == 3


def test_an_idle_worker_is_used_before_another_is_started(world: World) -> None:
    driver = world.driver()
    worker = world.start_worker_for(driver)
    task = driver.submit()
    assert worker.tasks == [task]
    assert world.commanded(m.StartWorker) == []


def test_a_worker_without_work_gives_its_cpu_back(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    assert (state_of(worker), world.available()) == (LEASED, 0)
    worker.finish(task)
    assert (state_of(worker), world.available()) == (IDLE, 1)


def test_tasks_that_need_no_cpu_all_run_at_once(world: World) -> None:
    driver = world.driver()
    template = driver.define(resources={})
    tasks = {driver.submit(template) for _ in range(9)}
    workers = world.start_workers()
    assert {task for worker in workers for task in worker.tasks} == tasks
    assert all(len(worker.tasks) == 1 for worker in workers if worker.tasks)


def test_a_driver_may_have_workers_started_before_it_asks(world: World) -> None:
    driver = world.driver()
    world.machine.scheduler.prestart(driver.job)
    world.route(world.machine.take())
    worker = world.start_worker()
    task = driver.submit()
    assert worker.tasks == [task]


def test_workers_of_one_job_do_not_run_tasks_of_another(world: World) -> None:
    first, second = world.driver(), world.driver()
    worker = world.start_worker_for(first)
    task = second.submit()
    other = world.start_worker()
    assert (worker.tasks, other.tasks) == ([], [task])


def test_a_worker_that_has_seen_devices_runs_only_what_uses_them() -> None:
    world = World(cpus=1, gpus=1)
    driver = world.driver()
    worker = world.start_worker_for(driver)
    task = driver.submit(resources={"GPU": 1.0})
    other = world.start_worker()
    assert (worker.tasks, other.tasks) == ([], [task])


def test_workers_beyond_the_number_of_cpus_end_after_a_while(world: World) -> None:
    driver = world.driver()
    template = driver.define(resources={})
    tasks = [driver.submit(template) for _ in range(6)]
    workers = world.start_workers()
    for worker in workers:
        for task in worker.tasks:
            worker.finish(task)
    max_workers = world.machine.scheduler.max_workers
    assert len(workers) > max_workers
    assert world.machine.next_tick() == IDLE_WORKER_TIMEOUT_S
    world.pass_time(IDLE_WORKER_TIMEOUT_S)
    told = [worker for worker in workers if worker.told(m.Exit)]
    assert len(told) == len(workers) - max_workers
    assert all(state_of(worker) is LEAVING for worker in told)
    assert len(tasks) == 6


def test_a_worker_that_dies_idle_is_forgotten(world: World) -> None:
    driver = world.driver()
    world.start_worker_for(driver).leave()
    task = driver.submit()
    assert world.start_worker().tasks == [task]


def test_a_worker_that_ends_after_a_number_of_calls_is_replaced(world: World) -> None:
    driver = world.driver()
    template = driver.define(max_calls=1)
    first, second = driver.submit(template), driver.submit(template)
    worker = world.start_worker()
    worker.finish(first, last=True)
    assert state_of(worker) is LEAVING
    worker.leave(0)
    assert world.start_worker().tasks == [second]


def test_tasks_behind_the_last_call_of_a_worker_run_elsewhere_and_lose_no_retry(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver, max_calls=2)
    second, third = driver.submit(template), driver.submit(template)
    assert worker.tasks == [second, third]
    worker.finish(second, seconds=SHORT, last=True)
    other = world.start_worker()
    assert other.tasks == [third]
    worker.leave(0)
    other.finish(third, b"fine")
    assert driver.value_of(result(third)) == b"fine"


# ---------------------------------------------------------------- workers that do not start


def test_a_worker_that_fails_to_start_is_started_again(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    world.fail_to_start()
    assert world.start_worker().tasks == [task]


def test_tasks_fail_when_workers_keep_failing_to_start(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    for _ in range(MAX_START_FAILURES):
        assert driver.value_of(result(task)) is None
        world.fail_to_start()
    error = driver.error_of(result(task))
    assert isinstance(error, RaySystemError)
    assert "Failed to startup worker" in str(error)
    assert "No module named 'x'" in str(error)
    assert world.commanded(m.StartWorker) == []


def test_a_task_that_is_retried_without_end_outlasts_kills_of_starting_workers(world: World) -> None:
    driver = world.driver()
    endless, limited = driver.submit(max_retries=-1), driver.submit(max_retries=3)
    for _ in range(2 * MAX_START_FAILURES):
        world.fail_to_start(KILLED)
    assert isinstance(driver.error_of(result(limited)), RaySystemError)
    assert world.start_worker().tasks == [endless]


def test_an_actor_that_restarts_without_end_outlasts_kills_of_starting_workers(world: World) -> None:
    driver = world.driver()
    actor = driver.create(max_restarts=-1)
    for _ in range(2 * MAX_START_FAILURES):
        world.fail_to_start(KILLED)
    assert world.start_worker().become() == actor


def test_failures_to_start_count_only_in_a_row(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=-1)
    for _ in range(MAX_START_FAILURES + 1):
        world.fail_to_start()
        world.start_worker().leave()
        world.pass_time(MAX_RETRY_DELAY_S)
    assert driver.value_of(result(task)) is None


def test_a_killed_worker_that_starts_all_the_same_is_killed_again(world: World) -> None:
    driver, _ = world.driver(), world.driver()
    driver.submit(environment="slow to make")
    (start,) = world.commanded(m.StartWorker)
    driver.leave()
    assert world.killed() == [start.number]
    worker = Worker(world, start.number, start.job)
    worker.say(m.Hello("worker", 1, start.number, "w"))
    assert world.killed() == [start.number]
    assert world.machine.scheduler.idle_workers() == []


# ---------------------------------------------------------------- environments


def test_tasks_of_an_environment_run_on_workers_of_their_own(world: World) -> None:
    driver = world.driver()
    worker = world.start_worker_for(driver)
    task = driver.submit(environment="with numpy")
    (start,) = world.commanded(m.StartWorker)
    assert (start.environment, worker.tasks) == ("with numpy", [])
    assert world.unfinished == [task]


def test_tasks_fail_when_their_environment_cannot_be_made(world: World) -> None:
    driver = world.driver()
    template = driver.define(environment="broken")
    first, second = driver.submit(template), driver.submit(template)
    other = driver.submit()
    world.tell(0, m.EnvironmentReady("broken", "no such package"))
    for task in (first, second):
        error = driver.error_of(result(task))
        assert isinstance(error, RuntimeEnvSetupError)
        assert "no such package" in str(error)
    assert world.unfinished == [other]


def test_an_environment_that_failed_is_tried_again_for_the_next_task(world: World) -> None:
    driver = world.driver()
    template = driver.define(environment="broken")
    driver.submit(template)
    world.tell(0, m.EnvironmentReady("broken", "no network"))
    world.commanded(m.StartWorker)
    task = driver.submit(template)
    assert world.start_worker().tasks == [task]


def test_a_worker_killed_before_its_environment_failed_is_forgotten(world: World) -> None:
    driver, _ = world.driver(), world.driver()
    driver.submit(environment="broken")
    (start,) = world.commanded(m.StartWorker)
    driver.leave()
    world.tell(0, m.EnvironmentReady("broken", "no such package"))
    assert start.number not in world.machine.peers


# ---------------------------------------------------------------- sending ahead


def test_short_tasks_are_sent_to_a_busy_worker_ahead_of_time(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    tasks = [driver.submit(template) for _ in range(3)]
    assert worker.tasks == tasks


def test_only_so_many_tasks_are_sent_ahead(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    for _ in range(3 * MAX_TASKS_AHEAD):
        driver.submit(template)
    assert len(worker.tasks) <= MAX_TASKS_AHEAD
    while worker.tasks:
        worker.finish(worker.tasks[0], seconds=SHORT)
    assert world.unfinished == []


def test_long_tasks_are_not_sent_ahead(world: World) -> None:
    driver = world.driver()
    template = driver.define()
    first = driver.submit(template)
    worker = world.start_worker()
    worker.finish(first, seconds=LONG)
    second = driver.submit(template)
    driver.submit(template)
    assert worker.tasks == [second]


def test_tasks_behind_one_that_turns_out_long_are_asked_back(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    first, second, third = (driver.submit(template) for _ in range(3))
    assert world.machine.next_tick() == RECALL_TIMEOUT_S
    world.pass_time(2 * RECALL_TIMEOUT_S)
    assert len(worker.told(m.Recall)) == 1
    worker.hand_back(second, third)
    assert worker.tasks == [first]
    worker.finish(first)
    assert worker.tasks[0] == second, "tasks that come back keep their turn"


@pytest.mark.parametrize(("seconds", "count"), [(0.0001, 64), (0.001, 11), (0.002, 6), (0.02, 2), (0.03, 1)])
def test_a_worker_has_fewer_tasks_at_a_time_the_longer_they_take(seconds: float, count: int) -> None:
    world = World(cpus=1)
    driver = world.driver()
    worker, template = tasks_of(driver, seconds)
    for _ in range(140):
        driver.submit(template)
    while len(world.unfinished) > 80:  # the first was sent alone
        worker.finish(worker.tasks[0], seconds=seconds)
    assert 0 < len(worker.tasks) <= count
    assert len(worker.tasks) > count // 2 - 1


def test_tasks_are_sent_to_all_busy_workers_alike() -> None:
    world = World(cpus=4)
    driver = world.driver()
    template, workers = busy_workers(driver, 4, seconds=0.001)
    for _ in range(8):
        driver.submit(template)
    assert [len(worker.tasks) for worker in workers] == [3, 3, 3, 3]


def test_tasks_that_wait_behind_others_are_recalled_for_an_idle_worker() -> None:
    world = World(cpus=2)
    driver = world.driver()
    template, (one, other) = busy_workers(driver, 2, seconds=0.01)
    for _ in range(2):
        driver.submit(template)
    _, behind = one.tasks
    other.finish(other.tasks[0], seconds=0.01)
    assert not one.told(m.Recall)
    other.finish(other.tasks[0], seconds=0.01)
    assert one.told(m.Recall)
    one.hand_back(behind)
    assert other.tasks == [behind]


def test_tiny_tasks_are_not_recalled_for_an_idle_worker() -> None:
    world = World(cpus=2)
    driver = world.driver()
    template, (one, other) = busy_workers(driver, 2, seconds=0.0001)
    for _ in range(8):
        driver.submit(template)
    while other.tasks:
        other.finish(other.tasks[0], seconds=0.0001)
    assert len(one.tasks) > 1
    assert not one.told(m.Recall)


def test_an_idle_worker_gets_the_tasks_of_one_other_worker() -> None:
    world = World(cpus=4)
    driver = world.driver()
    template, workers = busy_workers(driver, 4, seconds=0.01)
    for _ in range(4):
        driver.submit(template)
    while workers[0].tasks:
        workers[0].finish(workers[0].tasks[0], seconds=0.01)
    assert sum(len(worker.told(m.Recall)) for worker in workers) == 1
    world.pass_time(RECALL_TIMEOUT_S)
    assert sum(len(worker.told(m.Recall)) for worker in workers) == 1, "the first has sent nothing back"


def test_nothing_is_sent_to_a_worker_whose_task_takes_much_longer_than_usual() -> None:
    world = World(cpus=1)
    driver = world.driver()
    worker, template = short_tasks(driver)
    running = driver.submit(template)
    world.now += 2 * RECALL_TIMEOUT_S
    driver.submit(template)
    assert worker.tasks == [running]


def test_tasks_sent_while_others_come_back_are_watched_too() -> None:
    world = World(cpus=2)
    driver = world.driver()
    template, (one, other) = busy_workers(driver, 2, seconds=0.01)
    for _ in range(2):
        driver.submit(template)
    running, behind = one.tasks
    while other.tasks:
        other.finish(other.tasks[0], seconds=0.01)
    assert one.told(m.Recall)
    one.finish(running, seconds=0.01)
    driver.submit(template)
    late = driver.submit(template)
    assert one.tasks == [behind, late]
    world.pass_time(0.05)
    assert one.told(m.Recall), "the task that was sent meanwhile waits behind a long one as well"


def test_a_worker_that_dies_loses_a_retry_only_for_what_it_ran(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running, behind = driver.submit(template), driver.submit(template)
    worker.leave()
    assert isinstance(driver.error_of(result(running)), WorkerCrashedError)
    assert world.start_worker().tasks == [behind]


def test_a_worker_that_hands_everything_back_is_given_work_again(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    first, second = driver.submit(template), driver.submit(template)
    worker.finish(first, seconds=SHORT)
    worker.hand_back(second)
    assert worker.tasks == [second]


# ---------------------------------------------------------------- lending CPUs


def test_a_blocked_worker_lends_its_cpu(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit(parent=parent)
    assert world.commanded(m.StartWorker) == []
    worker.block(result(child))
    assert world.available() == 1
    other = world.start_worker()
    assert other.tasks == [child]


def run_next(worker: Worker, expected: list[bytes]) -> None:
    """Finish the tasks that a worker gets, one after another."""
    for task in expected:
        assert worker.tasks == [task]
        worker.finish(task)


def test_what_a_blocked_worker_waits_for_runs_before_older_tasks(world: World) -> None:
    driver = world.driver()
    template = driver.define()
    parent, *others = [driver.submit(template) for _ in range(3)]
    worker = world.start_worker()
    children = [worker.submit(parent=parent) for _ in range(3)]
    grandchildren = []
    worker.block(*map(result, children[:2]))
    other = world.start_worker()
    assert other.tasks == [children[0]]
    grandchildren.append(other.submit(parent=children[0]))
    other.block(result(grandchildren[0]))
    run_next(world.start_worker(), [grandchildren[0], children[1], *others, children[2]])


def test_the_arguments_of_what_a_blocked_worker_waits_for_come_first_too(world: World) -> None:
    driver = world.driver()
    template = driver.define()
    parent, other = [driver.submit(template) for _ in range(2)]
    worker = world.start_worker()
    argument = worker.submit(parent=parent)
    child = worker.submit(parent=parent, needs=[result(argument)])
    worker.block(result(child))
    run_next(world.start_worker(), [argument, child, other])


def test_tasks_that_are_handed_back_do_not_overtake_what_a_blocked_worker_waits_for(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running, ahead, queued = [driver.submit(template) for _ in range(3)]
    child = worker.submit(parent=running)
    worker.block(result(child), task=running)
    worker.hand_back(ahead, queued)
    assert world.start_worker().tasks[0] == child


def test_what_a_blocked_worker_waits_for_runs_before_older_tasks_with_other_resources() -> None:
    world = World(cpus=1)
    driver = world.driver()
    template = driver.define()
    parent, other = [driver.submit(template) for _ in range(2)]
    worker = world.start_worker()
    child = worker.submit(parent=parent, resources={"CPU": 0.5})
    worker.block(result(child))
    run_next(world.start_worker(), [child, other])


def test_a_worker_that_goes_on_takes_its_cpu_back_even_if_that_is_one_too_many(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit(parent=parent)
    worker.block(result(child))
    other = world.start_worker()
    worker.unblock()
    assert world.available() == -1
    other.finish(child)
    assert world.available() == 0
    worker.finish(parent)
    assert world.available() == 1


def test_the_lent_cpu_of_a_worker_that_dies_is_not_given_back_twice(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    worker.block(task=parent)
    worker.leave()
    assert world.available() == 1


def test_a_worker_that_waits_in_two_threads_goes_on_when_both_do(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    worker.block(task=task)
    worker.block(task=task)
    worker.unblock(task)
    assert world.available() == 1
    worker.unblock(task)
    assert world.available() == 0


def test_nothing_is_sent_ahead_to_a_blocked_worker(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running = driver.submit(template)
    worker.block(task=running)
    driver.submit(template)
    assert worker.tasks == [running]


def test_a_blocked_actor_keeps_its_cpu(world: World) -> None:
    driver = world.driver()
    actor = driver.create(spec={"resources": {"CPU": 1.0}})
    worker = world.start_worker()
    worker.become()
    worker.block(task=driver.ids.call(actor))
    assert world.available() == 0


def test_a_gpu_is_not_lent() -> None:
    world = World(cpus=1, gpus=1)
    driver = world.driver()
    task = driver.submit(resources={"CPU": 1.0, "GPU": 1.0})
    world.start_worker().block(task=task)
    assert (world.available("CPU"), world.available("GPU")) == (1, 0)


# ---------------------------------------------------------------- fairness


def test_a_long_queue_does_not_keep_older_tasks_of_another_kind_waiting(world: World) -> None:
    driver = world.driver()
    many = driver.define(name="many")
    first = driver.submit(many)
    worker = world.start_worker()
    older = driver.submit(name="other", resources={"CPU": 0.5})
    for _ in range(5):
        driver.submit(many)
    worker.finish(first)
    assert older in worker.tasks


def test_a_long_queue_of_short_tasks_does_not_keep_older_ones_waiting(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running = [driver.submit(template) for _ in range(2)]
    older = driver.submit(name="other", resources={"CPU": 0.5})
    for _ in range(100):
        driver.submit(template)
    for task in running:
        worker.finish(task, seconds=SHORT)
    assert older in worker.tasks


def test_a_long_queue_does_not_keep_a_placement_group_waiting(world: World) -> None:
    driver = world.driver()
    template = driver.define()
    tasks = [driver.submit(template) for _ in range(5)]
    worker = world.start_worker()
    group = driver.reserve({"CPU": 1.0})
    worker.finish(tasks[0])
    assert world.machine.groups.table[group].state == "CREATED"


def test_a_small_task_runs_while_a_large_one_waits_for_room() -> None:
    world = World(cpus=2)
    driver = world.driver()
    running = driver.submit()
    worker = world.start_worker()
    large = driver.submit(resources={"CPU": 2.0})
    small = driver.submit()
    other = world.start_worker()
    assert (worker.tasks, other.tasks) == ([running], [small])
    worker.finish(running)
    other.finish(small)
    assert large in worker.tasks + other.tasks


# ---------------------------------------------------------------- devices


def test_each_task_is_told_its_own_devices() -> None:
    world = World(gpus=2)
    driver = world.driver()
    template = driver.define(resources={"GPU": 1.0})
    driver.submit(template)
    driver.submit(template)
    workers = world.start_workers()
    assert sorted(worker.runs[0].accelerators["GPU"] for worker in workers) == [["0"], ["1"]]


def test_halves_of_a_device_are_put_together() -> None:
    world = World(gpus=2)
    driver = world.driver()
    template = driver.define(resources={"GPU": 0.5})
    for _ in range(2):
        driver.submit(template)
    whole = driver.submit(resources={"GPU": 1.0})
    workers = world.start_workers()
    devices = {worker.tasks[0]: worker.runs[0].accelerators["GPU"] for worker in workers if worker.tasks}
    assert len(devices) == 3
    halves = [ids for task, ids in devices.items() if task != whole]
    assert halves[0] == halves[1] != devices[whole]


def test_a_device_is_free_again_when_its_task_is_over() -> None:
    world = World(gpus=1)
    driver = world.driver()
    template = driver.define(resources={"GPU": 1.0})
    first, second = driver.submit(template), driver.submit(template)
    worker = world.start_worker()
    assert worker.tasks == [first]
    worker.finish(first)
    assert [run.accelerators for run in worker.runs if run.task == second] == [{"GPU": ["0"]}]


def test_resources_of_any_name_are_counted() -> None:
    world = World(resources={"license": 1})
    driver = world.driver()
    template = driver.define(resources={"license": 1.0})
    first, second = driver.submit(template), driver.submit(template)
    worker = world.start_worker()
    assert worker.tasks == [first]
    worker.finish(first)
    assert worker.tasks == [second]


# ---------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ({"zone": "a"}, True),
        ({"zone": "!a"}, False),
        ({"zone": "in(a, b)"}, True),
        ({"zone": "!in(a)"}, False),
    ],
)
def test_a_task_runs_only_where_the_labels_fit(selector: dict[str, str], fits: bool) -> None:
    world = World(labels={"zone": "a"})
    driver = world.driver()
    task = driver.submit(labels=selector)
    assert (world.unfinished == [task]) is fits


def test_a_task_takes_the_first_of_its_choices_that_fits() -> None:
    world = World(labels={"zone": "a"})
    driver = world.driver()
    task = driver.submit(labels={"zone": "b"}, label_choices=[{"zone": "a"}])
    assert world.unfinished == [task]


def test_a_task_for_another_node_fails(world: World) -> None:
    driver = world.driver()
    task = driver.submit(node="ff" * 28)
    assert "which does not exist" in str(driver.error_of(result(task)))


def test_a_task_does_not_wait_for_a_long_queue_of_actors() -> None:
    world = World(cpus=2)
    driver = world.driver()
    for _ in range(20):
        driver.create()
    task = driver.submit()
    ready: list[Worker] = []
    while not any(task in worker.tasks for worker in ready):
        command = next(iter(command for command in world.commands if isinstance(command, m.StartWorker)))
        world.commands.remove(command)
        worker = Worker(world, command.number, command.job)
        worker.say(m.Hello("worker", 1000 + worker.number, worker.number, f"w{worker.number}"))
        ready.append(worker)
    assert len(ready) == 2
    ready[-1].finish(task)
    assert ready[-1].actor is not None, "the actors go on"
