"""The program that one replica runs: it prints that it works until it gets SIGTERM."""

import os
import signal
import sys
import threading

stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
print(f"{os.getpid()} works, fence {os.environ['LEASELOCK_TOKEN']}", flush=True)
stopped.wait()
sys.exit(0)
