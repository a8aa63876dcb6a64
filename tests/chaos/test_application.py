"""Tests of Application with small programs as workloads: their output, their exits, the processes that they leave
running, and the lines that are kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
import trio

from kraft.sim.chaos.application import application
from kraft.sim.chaos.application.application import NOTE, STDERR, STDOUT, Application, ApplicationEnd
from kraft.sim.chaos.application.program import (
    BOOTSTRAP_VARIABLES,
    NOT_EXECUTABLE,
    NOT_FOUND,
    ProgramNotFound,
    describe_exit,
    require_program,
)
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.judge.application import APPLICATION_FAILED, application_anomaly, application_reasons
from kraft.sim.chaos.run.run_folder import FaultRecord

BOOTSTRAP = "127.0.0.1:1,127.0.0.1:2"
IGNORES_SIGTERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
)


def now_ms() -> float:
    return trio.current_time() * 1000


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), *arguments]


def program(code: str, *arguments: str, echo: bool = False) -> Application:
    return Application(python(code, *arguments), BOOTSTRAP, now_ms, echo=echo)


async def until_printed(running: Application, text: str = "") -> None:
    """Wait until the program has printed this line, or any line if no text is given."""
    while not any(line.text == text or not text for line in running.output):  # noqa: ASYNC110
        await trio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


async def until_dead(pid: int) -> None:
    """Wait until a killed process that is not a child of ours has ended."""
    while is_alive(pid):  # noqa: ASYNC110 - it notifies only its parent
        await trio.sleep(0.01)


# output


async def test_application_output_of_both_streams_is_kept_with_times() -> None:
    begin_ms = now_ms()
    async with program("import sys; print('one'); print('two', file=sys.stderr); print('three', end='')") as running:
        await running.wait()
    assert {(line.stream, line.text) for line in running.output} == {
        (STDOUT, "one"),
        (STDERR, "two"),
        (STDOUT, "three"),
    }
    assert all(begin_ms <= line.time_ms <= now_ms() for line in running.output)


async def test_application_output_is_available_while_the_program_runs() -> None:
    async with program("import signal; print('up', flush=True); signal.pause()") as running:
        await until_printed(running, "up")
        assert running.end is None


async def test_application_echo_prints_lines_to_the_same_stream(capsys: pytest.CaptureFixture[str]) -> None:
    async with program("import sys; print('one'); print('two', file=sys.stderr)", echo=True) as running:
        await running.wait()
    assert capsys.readouterr() == ("one\n", "two\n")


async def test_application_without_echo_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with program("print('one')") as running:
        await running.wait()
    assert capsys.readouterr() == ("", "")


async def test_application_output_beyond_the_line_limit_is_dropped_except_the_last_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(application, "LINES_MAX", 5)
    async with program("[print(number) for number in range(1000)]") as running:
        end = await running.wait()
    texts = [line.text for line in running.output]
    assert texts[:5] == ["0", "1", "2", "3", "4"]
    assert running.output[5].stream == NOTE
    assert texts[6:] == [str(number) for number in range(990, 1000)]
    assert end.last_lines == tuple(texts[6:])


async def test_application_output_beyond_the_byte_limit_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "BYTES_MAX", 100)
    async with program("[print('x' * 60) for _ in range(4)]") as running:
        await running.wait()
    assert [line.stream for line in running.output] == [STDOUT, NOTE, STDOUT, STDOUT, STDOUT]


async def test_a_too_long_application_output_line_becomes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "LINE_BYTES_MAX", 1000)
    async with program("print('x' * 2500)") as running:
        await running.wait()
    assert [len(line.text) for line in running.output] == [1000, 1000, 500]


async def test_application_output_that_is_not_utf8_is_kept_with_replacement_characters() -> None:
    async with program(r"import sys; sys.stdout.buffer.write(b'a\xff\r\nb\n')") as running:
        await running.wait()
    assert [line.text for line in running.output] == ["a\ufffd", "b"]


# the program's environment


async def test_application_gets_the_cluster_address_in_environment_and_arguments() -> None:
    code = "import os, sys; print(*[os.environ[name] for name in sys.argv[2:]], sys.argv[1], sep='\\n')"
    async with program(code, "--to={bootstrap}", *BOOTSTRAP_VARIABLES) as running:
        await running.wait()
    assert [line.text for line in running.output] == [BOOTSTRAP] * len(BOOTSTRAP_VARIABLES) + [f"--to={BOOTSTRAP}"]


async def test_application_environment_is_extended_by_the_given_variables() -> None:
    command = python("import os; print(os.environ['SHOP'], 'PATH' in os.environ)")
    async with Application(command, BOOTSTRAP, now_ms, environment={"SHOP": "open"}) as running:
        await running.wait()
    assert [line.text for line in running.output] == ["open True"]


async def test_application_standard_input_is_empty() -> None:
    async with program("import sys; print(repr(sys.stdin.read()))") as running:
        await running.wait()
    assert [line.text for line in running.output] == ["''"]


# how the program ends


async def test_a_program_with_exit_code_0_has_not_failed() -> None:
    async with program("print('done')") as running:
        end = await running.wait()
    assert (end.exit_code, end.was_stopped, end.failure, end.trouble) == (0, False, "", "")


async def test_the_failure_of_a_program_has_its_exit_code_and_last_lines() -> None:
    async with program("print('order 7 is missing'); raise SystemExit(3)") as running:
        end = await running.wait()
    assert end.counted_exit == 3
    assert end.failure == "the application ended with exit code 3"
    assert end.last_lines == ("order 7 is missing",)


async def test_a_program_ended_by_a_signal_has_a_shells_exit_code() -> None:
    async with program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)") as running:
        end = await running.wait()
    assert (end.exit_code, end.failure) == (137, "the application was ended by SIGKILL (exit code 137)")


async def test_a_program_that_dies_of_sigterm_without_a_stop_has_failed() -> None:
    async with program("import os, signal; os.kill(os.getpid(), signal.SIGTERM)") as running:
        end = await running.wait()
    assert end.counted_exit == 143
    assert end.failure


async def test_a_stopped_program_that_dies_of_sigterm_has_not_failed() -> None:
    async with program("import signal; print('up', flush=True); signal.pause()") as running:
        await until_printed(running, "up")
        end = await running.stop()
    assert (end.exit_code, end.was_stopped, end.counted_exit, end.failure) == (143, True, 0, "")


async def test_a_stopped_program_that_exits_with_an_error_code_has_failed() -> None:
    code = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
    print("up", flush=True)
    while True:  # a signal may come before a pause has begun
        time.sleep(0.05)
    """
    async with program(code) as running:
        await until_printed(running, "up")
        end = await running.stop()
    assert end.counted_exit == 4
    assert "exit code 4" in end.failure
    assert "SIGTERM" in end.failure


async def test_a_program_that_ignores_sigterm_is_killed_and_its_success_is_unknown() -> None:
    async with program(IGNORES_SIGTERM) as running:
        await until_printed(running, "up")
        end = await running.stop(timeout_ms=50)
    assert (end.exit_code, end.failure) == (None, "")
    assert "was killed" in end.trouble


async def test_stopping_an_application_ends_a_program_that_is_frozen_by_sigstop() -> None:
    async with program("import signal; print('up', flush=True); signal.pause()") as running:
        await until_printed(running, "up")
        os.kill(running.pid, signal.SIGSTOP)
        assert (await running.stop()).exit_code == 143


async def test_leaving_the_application_context_stops_the_program() -> None:
    async with program("import signal; print('up', flush=True); signal.pause()") as running:
        await until_printed(running, "up")
    assert running.end == ApplicationEnd(143, True, running.end.at_ms if running.end else 0, ("up",))
    assert not is_alive(running.pid)


async def test_an_error_in_the_application_context_kills_the_program_and_propagates_unchanged() -> None:
    with pytest.raises(LookupError):
        async with program(IGNORES_SIGTERM) as running:
            await until_printed(running, "up")
            raise LookupError
    assert not is_alive(running.pid)


async def test_a_cancelled_run_kills_the_program() -> None:
    with trio.CancelScope() as scope:
        async with program(IGNORES_SIGTERM) as running:
            await until_printed(running, "up")
            scope.cancel()
            await trio.sleep_forever()
    assert not is_alive(running.pid)


async def test_processes_that_an_ended_program_leaves_running_are_killed() -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    async with program(code) as running:
        await running.wait()
    await until_dead(int(running.output[0].text))


async def test_the_process_group_of_a_stopped_program_is_stopped_too() -> None:
    code = "import subprocess, signal; print(subprocess.Popen(['sleep', '600']).pid, flush=True); signal.pause()"
    async with program(code) as running:
        await until_printed(running)
        await running.stop()
    await until_dead(int(running.output[0].text))


def test_a_killed_runner_leaves_no_program_running(tmp_path: Path) -> None:
    runner = f"""
    import sys, time, trio
    from kraft.sim.chaos.application.application import Application
    from kraft.sim.chaos.hosts.warden import Warden

    async def main():
        command = [sys.executable, "-c", {IGNORES_SIGTERM!r}]
        with Warden() as warden:
            async with Application(command, "x:1", lambda: 0.0, warden=warden) as running:
                print(running.pid, warden.pid, flush=True)
                await trio.sleep_forever()

    trio.run(main)
    """
    with subprocess.Popen(python(runner), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, warden_pid = map(int, process.stdout.readline().split())
        warden = psutil.Process(warden_pid)
        assert is_alive(pid)
        process.kill()
    warden.wait(30)
    assert not is_alive(pid)


async def test_a_program_that_has_ended_is_released_from_the_warden() -> None:
    with Warden() as warden:
        async with Application(python("print(1)"), BOOTSTRAP, now_ms, warden=warden) as running:
            await running.wait()
    assert warden.leftovers == ()


# programs that cannot be started


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ([], NOT_FOUND, "the command is empty"),
        (["no-such-program"], NOT_FOUND, "no such program in PATH"),
        (["./no-such-file"], NOT_FOUND, "no such file"),
        (["./plain"], NOT_EXECUTABLE, "chmod +x"),
        (["plain"], NOT_FOUND, "write ./plain"),
        (["./folder"], NOT_EXECUTABLE, "is a folder"),
    ],
)
def test_a_command_that_cannot_be_started_is_rejected_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ProgramNotFound, match=said.replace("+", r"\+")) as refused:
        require_program(command)
    assert refused.value.code == code


def test_a_program_command_on_path_is_accepted() -> None:
    require_program(["sh", "-c", "true"])


async def test_a_program_file_that_the_system_cannot_start_is_rejected(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x7fELF and no more")
    script.chmod(0o755)
    with pytest.raises(ProgramNotFound, match="cannot be started"):
        async with Application([str(script)], BOOTSTRAP, now_ms):
            raise AssertionError("it was started")


def test_a_program_exit_is_described_by_code_or_signal() -> None:
    assert describe_exit(3) == "ended with exit code 3"
    assert describe_exit(139) == "was ended by SIGSEGV (exit code 139)"
    assert describe_exit(255) == "ended with exit code 255"


# the program in the verdict


@pytest.mark.parametrize("counted", [0, None])
def test_a_program_that_has_not_failed_is_no_anomaly(counted: int | None) -> None:
    assert application_anomaly(counted, ()) is None


async def test_a_program_that_has_failed_is_an_anomaly_with_its_last_lines() -> None:
    async with program("print('lost: 7'); raise SystemExit(1)") as running:
        end = await running.wait()
    anomaly = application_anomaly(end.counted_exit, running.output)
    assert anomaly is not None
    assert anomaly.name == APPLICATION_FAILED
    assert anomaly.evidence == {"exit_code": 1, "last_lines": ["lost: 7"]}


def test_a_program_that_ended_before_the_first_fault_makes_the_verdict_unknown() -> None:
    faults = [
        FaultRecord(kind="kill", text="", begin_ms=1_000, end_ms=None, missed="nobody leads"),
        FaultRecord(kind="kill", text="", begin_ms=4_000, end_ms=9_000),
    ]
    (reason,) = application_reasons(3_999, faults)
    assert "before the first fault" in reason
    assert application_reasons(4_000, faults) == ()
    assert application_reasons(10, ()) == ()
