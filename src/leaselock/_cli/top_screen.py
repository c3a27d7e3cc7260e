"""The screen of `leaselock top`. It needs textual."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from leaselock import LeaselockError
from leaselock._cli import top_text
from leaselock._cli.formatting import escape, format_duration
from leaselock._cli.options import SORT_KEYS
from leaselock._cli.show import lock_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Resize

    from leaselock import LockInfo
    from leaselock.live import Monitor, View

STYLES = {top_text.DEADLOCKED: "bold red", top_text.LATE: "yellow", top_text.UNMARKED: ""}
HELP = [
    "/ filter by a part of a name, a label, a holder or a waiter; Escape ends it",
    "s sort by the next key                 p pause",
    "d details of the lock, or nothing      e events, or nothing",
    "b break the lock by force              Tab to scroll this half",
    "",
    top_text.LEGEND,
    "Grants and losses are those seen by comparing one read with the next.",
]


class BreakScreen(ModalScreen[bool]):
    """Asks for the name of a lock before it is broken."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "refuse", "do not break")]

    def __init__(self, lock: LockInfo) -> None:
        super().__init__()
        self.subject = lock

    def compose(self) -> ComposeResult:
        """The lock, what breaking means, and a field for the name."""
        lines = [
            *lock_lines(self.subject._replace(waiters=())),
            "",
            "Its holder works on until its next renewal: make sure that it is dead.",
        ]
        with Vertical(id="break"):
            yield Static(Text("\n".join(lines)))
            yield Input(placeholder="type the name of the lock, or its token, to break it")
            yield Static(Text("Enter: break    Escape: do not"), id="answer")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Break the lock if it was named."""
        event.stop()
        tokens = {str(hold.token) for hold in self.subject.holders if hold.token is not None}
        if event.value in {self.subject.name, escape(self.subject.name), *tokens}:
            _ = self.dismiss(True)
        else:
            self.query_one("#answer", Static).update(Text("that is not its name    Escape: do not"))

    def action_refuse(self) -> None:
        """Leave the lock as it is."""
        _ = self.dismiss(False)


def put(widget: Static, text: str) -> None:
    """Replace the text of a widget; what looks like markup in it is none."""
    widget.update(Text(text))


class Top(App[int]):
    """The live table of locks. It returns the signal that ended it, if one did."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head, #figures { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #head { text-style: bold; }
    #figures.away { text-style: reverse; color: $error; }
    #table { height: 1fr; }
    #filter { display: none; border: none; height: 1; padding: 0 1; }
    #lower { height: 45%; border-top: solid $primary; padding: 0 1; }
    BreakScreen { align: center middle; }
    #break { width: 76; max-width: 100%; height: auto; padding: 1 2; }
    #break { border: thick $error; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # A narrow terminal shows the first of them.
        Binding("question_mark", "help", "help"),
        Binding("q", "quit", "quit"),
        Binding("slash", "filter", "filter"),
        Binding("s", "sort", "sort"),
        Binding("d", "details", "details"),
        Binding("e", "events", "events"),
        Binding("p", "pause", "pause"),
        Binding("b", "break", "break"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("escape", "unfilter", "all", show=False),
    ]

    def __init__(self, monitor: Monitor, *, sort: str = "name") -> None:
        super().__init__()
        self.monitor = monitor
        self.view: View = monitor.view
        self.sort = sort
        self.only = ""
        self.paused = False
        self.below: Callable[[], list[str]] = self.lock_details
        self.names: list[str] = []
        self.shown: list[LockInfo] = []
        self.widths: dict[str, int] = {}
        # Kept here, for a query of the app finds those of the screen on top alone.
        self.head = Static(id="head")
        self.figures = Static(id="figures")
        self.table: DataTable[Text] = DataTable(id="table", cursor_type="row")
        self.field = Input(id="filter", placeholder="part of a name, label, holder or waiter")
        self.text = Static(id="text")
        self.lower = VerticalScroll(self.text, id="lower")

    def compose(self) -> ComposeResult:
        """The figures, the table, the lower half and the keys."""
        yield from (self.head, self.figures, self.table, self.field, self.lower)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read the store."""
        self.table.focus()
        self.run_worker(self.follow(), name="follow")

    async def follow(self) -> None:
        """Show each new view of the store."""
        view = self.monitor.view
        while True:
            view = await self.monitor.next(view.number)
            if not self.paused:
                self.view = view
                self.show_view()

    # --- what is shown ----------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        """Fit the columns to the terminal."""
        self.show_columns(event.size.width)
        self.show_view()

    def show_columns(self, width: int) -> None:
        """Show the columns for which there is room."""
        self.table.clear(columns=True)
        self.names = []
        self.widths = top_text.column_widths(width)
        for name, each in self.widths.items():
            self.table.add_column(name, width=each)

    def show_view(self) -> None:
        """Show the present view in all parts of the screen."""
        view = self.view
        store = escape(self.monitor.client.url)
        pattern = self.monitor.pattern
        which = "" if pattern == "*" else f"  {escape(pattern)}"
        took = format_duration(view.took)
        every = f"every {self.monitor.interval:g}s, read in {took}"
        put(self.head, f"leaselock top  {store}{which}  {every}")
        self.shown = top_text.matching(view, sort=self.sort, only=self.only)
        figures = top_text.summary(view, sort=self.sort, only=self.only, paused=self.paused)
        if len(self.shown) > top_text.MOST_ROWS:
            figures = f"first {top_text.MOST_ROWS} of {len(self.shown)} shown:  {figures}"
        problem = top_text.problem(view)
        put(self.figures, f"NO ANSWER {problem}" if problem else figures)
        self.figures.set_class(bool(problem), "away")
        self.show_table()
        self.show_below()

    def show_table(self) -> None:
        """Show the locks; the cursor stays on its lock, wherever that is now."""
        table, selected = self.table, self.selected_name
        rows = top_text.rows(self.view, self.shown[: top_text.MOST_ROWS], widths=self.widths)
        cells = [[Text(cell, STYLES[row.mark]) for cell in row.cells] for row in rows]
        names = [row.name for row in rows]
        if names == self.names:
            for line, texts in enumerate(cells):
                for column, text in enumerate(texts):
                    if table.get_cell_at((line, column)) != text:  # type: ignore[arg-type]
                        table.update_cell_at((line, column), text)  # type: ignore[arg-type]
            return
        row = table.cursor_row
        table.clear()
        for texts in cells:
            table.add_row(*texts)
        self.names = names
        if names:
            row = names.index(selected) if selected in names else min(row, len(names) - 1)
            table.move_cursor(row=row)

    @property
    def selected_name(self) -> str:
        """The name of the lock under the cursor; empty if there is none."""
        row = self.table.cursor_row
        return self.names[row] if 0 <= row < len(self.names) else ""

    def show_below(self) -> None:
        """Show the lower half."""
        put(self.text, "\n".join(self.below()))

    def lock_details(self) -> list[str]:
        """The lock under the cursor."""
        name = self.selected_name
        if not name:
            return ["no locks" if self.view.at else "reading ..."]
        return top_text.details(self.view, name)

    def recent_events(self) -> list[str]:
        """What happened lately."""
        return top_text.events(self.view) or ["no events yet"]

    def help_lines(self) -> list[str]:
        """The keys and the marks."""
        return HELP

    def on_data_table_row_highlighted(self) -> None:
        """The cursor has moved."""
        self.show_below()

    # --- keys -------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        """Sort by the next key."""
        self.sort = SORT_KEYS[(SORT_KEYS.index(self.sort) + 1) % len(SORT_KEYS)]
        self.show_view()

    def action_filter(self) -> None:
        """Ask for a part of a name."""
        self.field.display = True
        self.field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        if event.input is self.field:
            self.only = event.value
            self.show_view()

    def on_input_submitted(self) -> None:
        """Keep the filter, and go back to the table."""
        self.field.display = False
        self.table.focus()

    def action_unfilter(self) -> None:
        """Show all locks."""
        self.field.value = ""
        self.on_input_submitted()

    def action_details(self) -> None:
        """Show the details of a lock, or hide the lower half."""
        self.show_lower(self.lock_details)

    def action_events(self) -> None:
        """Show the events, or hide the lower half."""
        self.show_lower(self.recent_events)

    def action_help(self) -> None:
        """Show the keys, or hide the lower half."""
        self.show_lower(self.help_lines)

    def show_lower(self, below: Callable[[], list[str]]) -> None:
        """Show *below* in the lower half; hide that if it shows it already."""
        self.lower.display = not (self.lower.display and self.below == below)
        self.below = below
        self.lower.scroll_home(animate=False)
        self.show_below()

    def action_pause(self) -> None:
        """Stop or continue to show what is new."""
        self.paused = not self.paused
        if not self.paused:
            self.view = self.monitor.view
        self.show_view()

    def action_break(self) -> None:
        """Break the lock under the cursor."""
        name = self.selected_name
        lock = next((lock for lock in self.view.locks if lock.name == name), None)
        if lock is None or not lock.holders:
            self.notify("no lock that is held is selected")
            return

        self.run_worker(self.break_lock(lock), name="break")

    async def break_lock(self, lock: LockInfo) -> None:
        """End the holds that were shown, each by its token, after the name was typed."""
        if not await self.push_screen_wait(BreakScreen(lock)):
            return
        for hold in lock.holders:
            try:
                broken = await self.monitor.break_lock(lock.name, hold)
            except LeaselockError as error:
                self.notify(escape(str(error)), severity="error", markup=False)
                continue
            done = "was broken" if broken is not None else "had become free just before"
            self.notify(f"{escape(lock.name)} {done}", markup=False)
