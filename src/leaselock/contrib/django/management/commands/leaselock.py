"""`manage.py leaselock ls|show|break …`: the command `leaselock` on the store of the settings."""

from __future__ import annotations

import argparse
import os
from typing import Any

from django.core.management.base import BaseCommand

from leaselock.cli import main
from leaselock.contrib.django import options


class Command(BaseCommand):
    """Run `leaselock` on the store of the setting LEASELOCK."""

    help = "leaselock ls, show, break, doctor, setup, … on the store of the setting LEASELOCK"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Everything is passed on."""
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND …")

    def handle(self, *_args: Any, words: list[str], **_options: Any) -> None:
        """Run the command, and exit with its code."""
        store = options().get("store")
        if store is not None:
            os.environ["LEASELOCK_URL"] = str(store)
        if code := main(words):
            raise SystemExit(code)
