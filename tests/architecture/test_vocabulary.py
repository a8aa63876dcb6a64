"""Words of public names are explained: a private word without an entry in the glossary fails."""

from __future__ import annotations

import re

import pytest

from tests.architecture.vocabulary import (
    BANNED,
    PAGE,
    Entry,
    explained,
    forms,
    glossary,
    listed_words,
    public_names,
    used_words,
    words_of,
)

ADVICE = (
    "words of public names that nothing explains: add a word of Kafka, Raft, Python or plain English to "
    "tests/architecture/vocabulary.txt (python -m tests.architecture.vocabulary), and a word of this project to the "
    "glossary in docs/architecture.md"
)


def test_every_word_of_a_public_name_is_known_or_in_the_glossary() -> None:
    known = set(listed_words()) | {entry.word for entry in glossary()}
    unknown = {word: place for word, place in used_words().items() if not explained(word, known)}
    assert unknown == {}, ADVICE


def test_vocabulary_lists_only_words_that_a_public_name_has() -> None:
    used = {form for word in used_words() for form in forms(word)}
    assert [word for word in listed_words() if word not in used] == []


def test_the_vocabulary_is_sorted_and_lists_each_word_once() -> None:
    assert listed_words() == sorted(set(listed_words()))


def test_a_word_of_the_glossary_is_not_in_the_vocabulary() -> None:
    private = {entry.word for entry in glossary()}
    assert private
    assert private.isdisjoint(listed_words())


def test_the_glossary_explains_each_word_once() -> None:
    words = [entry.word for entry in glossary()]
    assert words == sorted(set(words))


def test_every_row_of_the_glossary_is_parsed_as_an_entry() -> None:
    section = PAGE.read_text().partition("## Glossary")[2]
    assert len(re.findall(r"^\| \*\*", section, re.MULTILINE)) == len(glossary())


@pytest.mark.parametrize("entry", glossary(), ids=lambda entry: entry.word)
def test_a_word_of_the_glossary_is_in_the_file_that_defines_it(entry: Entry) -> None:
    text = (PAGE.parent / entry.page).read_text()
    assert any(entry.word in forms(word) for word in words_of(text)), f"{entry.page} does not use {entry.word}"


def test_no_public_name_has_a_banned_word() -> None:
    found = {word: place for word, place in used_words().items() if forms(word) & BANNED}
    assert found == {}


def test_words_are_found_in_camel_case_and_snake_case_names() -> None:
    assert list(words_of("ISRProposal")) == ["isr", "proposal"]
    assert list(words_of("last_fetched_epoch")) == ["last", "fetched", "epoch"]


def test_vocabulary_check_accepts_an_inflected_form_of_a_listed_word() -> None:
    assert explained("entries", {"entry"})
    assert explained("dropped", {"drop"})
    assert explained("fencing", {"fence"})
    assert not explained("turnstile", {"turn"})


def test_vocabulary_check_ignores_names_that_begin_with_an_underscore() -> None:
    source = (
        "class _A: ...\nLIMIT = 1\nlocal = 2\ndef f(): ...\nclass B:\n    def _g(self): ...\n    def h(self): ...\n"
    )
    assert sorted(public_names(source)) == ["B", "LIMIT", "f", "h"]
