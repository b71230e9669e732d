"""In which processes are runs simulated, and how do these end?"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def workers(num: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``num`` processes; where an error or Ctrl-C leaves the block, what they do is given up at once."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num, mp_context=context, initializer=_begin) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


def _begin() -> None:
    """Set a worker up: it ends with its parent, however that ends, and its collector looks seldom."""
    # Ctrl-C goes to all processes of a terminal; the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # As in ``tessera serve``: almost all of a run lives until its end.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os._exit(1)
