"""The admin page: which locks are held, by which client, since when, and which clients wait."""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse

from leaselock import LeaselockError
from leaselock.contrib.django import client
from leaselock.contrib.django.models import Lock

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):
    """A list of the locks, with a button that breaks one for those who may."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Locks are not added here."""
        return False

    def has_break_permission(self, request: HttpRequest) -> bool:
        """Whether this user may break locks."""
        return bool(request.user.has_perm("leaselock.break_lock"))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show all locks; on POST break the one that was shown, by its token."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            self._break(request)
            return HttpResponseRedirect(request.path)
        try:
            locks = [_row(info) for info in client().locks()]
        except LeaselockError as error:
            messages.error(request, str(error))
            locks = []
        context = {
            **self.admin_site.each_context(request),
            "title": "Locks",
            "store": client().url,
            "locks": locks,
            "may_break": self.has_break_permission(request),
        }
        return TemplateResponse(request, "leaselock/locks.html", context)

    def _break(self, request: HttpRequest) -> None:
        if not self.has_break_permission(request):
            raise PermissionDenied
        try:
            name, token = request.POST["name"], int(request.POST["token"])
        except (KeyError, ValueError) as error:
            raise BadRequest("name and token are needed") from error
        try:
            broken = client().break_lock(name, token=token)
        except LeaselockError as error:
            messages.error(request, str(error))
            return
        except ValueError as error:
            raise BadRequest(str(error)) from error
        if broken is None:
            messages.info(request, f"{name!r} is free")
        else:
            messages.success(request, f"{name!r} was broken; its holder learns of it soon")


def _row(info: Any) -> dict[str, Any]:
    holder, since = info.holder, None
    if holder and holder.since:
        with suppress(ValueError, OverflowError, OSError):  # of another program, perhaps
            since = datetime.datetime.fromtimestamp(holder.since, datetime.UTC)
    row = {"name": info.name, "holder": holder, "since": since, "waiters": info.waiters}
    return row | {"unreadable": info.unreadable}
