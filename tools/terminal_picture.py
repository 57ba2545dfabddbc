"""Renders the terminal output of a command as SVG, for the documentation.

    python tools/terminal_picture.py --out docs/assets/status.svg -- penstock status
    python tools/terminal_picture.py --seconds 25 --out docs/assets/run.svg -- penstock table run …

The command runs in a real terminal (tmux) of the chosen size. The screen is captured when the
command has ended, or after `--seconds` if it still runs, and then it is interrupted. Nothing is
edited: the picture is the screen. It needs tmux.
"""

import argparse
import io
import re
import shlex
import subprocess
import sys
import time
import uuid
from pathlib import Path

from rich.console import Console
from rich.text import Text

FONT = re.compile(r"@font-face\s*\{[^}]*\}", re.DOTALL)
"""rich refers to a font on the network; pictures here must not need one."""
END_SECONDS_MAX = 30.0


def tmux(*words: str) -> str:
    """Run tmux and return its output."""
    done = subprocess.run(["tmux", *words], check=True, capture_output=True, text=True, timeout=30)
    return done.stdout


def screen_of(command: list[str], columns: int, rows: int, seconds: float) -> str:
    """Return the screen at the command's end, or after `seconds`, with its colours."""
    session = f"picture-{uuid.uuid4().hex[:8]}"
    words = f"clear; {shlex.join(command)}; tmux wait-for -S {session}; sleep {END_SECONDS_MAX}"
    size = ["-x", str(columns), "-y", str(rows)]
    environment = ["-e", "TERM=xterm-256color", "-e", "COLORTERM=truecolor"]
    tmux("new-session", "-d", "-s", session, *size, *environment, "sh", "-c", words)
    try:
        waiting = subprocess.Popen(["tmux", "wait-for", session])
        try:
            waiting.wait(seconds)
        except subprocess.TimeoutExpired:
            waiting.kill()
            waiting.wait()
        time.sleep(0.3)  # wait until the last output is drawn
        return tmux("capture-pane", "-e", "-p", "-t", session)
    finally:
        # It ends by itself after Ctrl-C; a missing session is fine.
        subprocess.run(["tmux", "send-keys", "-t", session, "C-c"], check=False, timeout=30)


def picture(screen: str, columns: int, title: str) -> str:
    """Return the screen as SVG."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip("\n")), soft_wrap=False)
    svg = FONT.sub("", console.export_svg(title=title))
    return svg.replace("Fira Code, monospace", "ui-monospace, DejaVu Sans Mono, monospace")


def main(arguments: list[str]) -> int:
    """Create one picture."""
    parser = argparse.ArgumentParser(prog="python tools/terminal_picture.py")
    parser.add_argument("--columns", type=int, default=110)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    screen = screen_of(options.command, options.columns, options.rows, options.seconds)
    if not screen.strip():
        raise SystemExit(f"{shlex.join(options.command)} showed nothing")
    options.out.write_text(picture(screen, options.columns, shlex.join(options.command)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
