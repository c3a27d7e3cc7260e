"""`manage.py leaselock ls|show|break …`: the command `leaselock` on the store of the settings."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_from_bytes

from django.core.management.base import BaseCommand, CommandError

from leaselock._backends import split_urls
from leaselock._cli import main
from leaselock._cli.store import URL, URL_FILE
from leaselock.contrib.django import options

if TYPE_CHECKING:
    from collections.abc import Mapping


class Command(BaseCommand):
    """Run `leaselock` on the store of the setting LEASELOCK."""

    help = "leaselock ls, show, break, doctor, setup, … on the store of the setting LEASELOCK"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Everything is passed on."""
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND …")

    def handle(self, *_args: Any, words: list[str], **_options: Any) -> None:
        """Run the command, and exit with its code."""
        url = url_of(options())
        if url is not None:
            os.environ[URL] = url
            os.environ.pop(URL_FILE, None)
        if code := main(words):
            raise SystemExit(code)


def url_of(settings: Mapping[str, Any]) -> str | None:
    """The URL that names the same locks as a client with these settings; None for the default.

    The prefix and the protocol are part of it: other ones would be other locks.
    """
    store = settings.get("store")
    choices = {name: settings.get(name) for name in ("prefix", "protocol")}
    if store is None:
        store = os.environ.get(URL)
        if store is None and any(choice is not None for choice in choices.values()):
            store = "sqlite:///"
    if store is None:
        return None
    if isinstance(store, os.PathLike):
        store = f"sqlite:///{quote_from_bytes(os.fsencode(os.path.abspath(store)))}"
    urls = split_urls(store) if isinstance(store, str) else store
    if not (isinstance(urls, list | tuple) and all(isinstance(url, str) for url in urls)):
        raise CommandError(
            "manage.py leaselock needs a store that a URL names, and the setting LEASELOCK has a "
            f"{type(store).__name__}: run `leaselock` itself, with --url"
        )
    return ",".join(_with_options(url, choices) for url in urls)


def _with_options(url: str, choices: Mapping[str, str | None]) -> str:
    """The URL with these options, as far as it does not have them."""
    place, _, query = url.partition("?")
    words = query.split("&") if query else []
    said = {word.partition("=")[0] for word in words}
    for name, choice in choices.items():
        if choice is not None and name not in said:
            words.append(f"{name}={quote(choice, safe='')}")
    return f"{place}?{'&'.join(words)}" if words else place
