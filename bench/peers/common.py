"""What all parts of scripts/bench-peers share: failures, what is said, commands that are run."""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Failed(Exception):
    """A peer can't be had, or failed at something; the text says why."""


def say(text):
    progress("")
    print(f"bench-peers: {text}", file=sys.stderr, flush=True)


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def last_lines(text, count=5):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-count:])[-600:] or "no message"


def call(command, limit, **more):
    """Runs a command that must succeed, and returns what it printed."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit,
                              check=False, **more)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]} took more than {limit} s") from None
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise Failed(f"{' '.join(command[:3])}: exit {done.returncode}: {last_lines(done.stdout)}")
    return done.stdout
