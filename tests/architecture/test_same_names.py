"""Two classes in different folders have different names, unless a reason for one name is listed."""

from __future__ import annotations

from tests.architecture.same_names import ALLOWED, same_names


def test_two_classes_of_the_product_have_the_same_name_only_for_a_listed_reason() -> None:
    assert {name: paths for name, paths in same_names().items() if name not in ALLOWED} == {}


def test_each_name_allowed_for_several_classes_is_used_by_several_classes() -> None:
    assert sorted(ALLOWED.keys() - same_names().keys()) == []
