from __future__ import annotations

import sys

import pytest

from kraft.sim.chaos.clients.libraries import LIBRARIES, UnknownLibrary, library_of


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_client_library_is_found_by_name_and_has_a_version(name: str) -> None:
    library = library_of(name)
    assert library.name == name
    assert library.version[0].isdigit() or library.version == "unknown"


def test_the_default_client_library_of_chaos_runs_is_pykrafts() -> None:
    assert library_of().name == "kraft"


def test_an_unknown_client_library_is_rejected_with_the_known_names() -> None:
    with pytest.raises(UnknownLibrary, match=r"librdkafka.*kraft, confluent-kafka, kafka-python"):
        library_of("librdkafka")


def test_a_client_library_that_is_not_installed_is_rejected_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kraft.sim.chaos.clients.kafka_python", None)
    with pytest.raises(UnknownLibrary, match=r"kafka-python.*pip install pykraft\[chaos\]"):
        library_of("kafka-python")
