"""Which of a list of canvases suits an image, and what of it is left when the padding is cut off?

The "any resolution" rule of LLaVA-NeXT, which LLaVA-OneVision and DeepSeek-VL2 share.
Source: transformers 5.18.0, image_processing_utils.py and LlavaNextProcessor.
"""

from collections.abc import Sequence


def best_resolution(first: int, second: int, canvases: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The canvas that keeps the most pixels of the image, then wastes the fewest of its own, then comes first.

    ``first`` and ``second`` are the image's sides in the order in which ``canvases`` give theirs.

    >>> best_resolution(720, 1280, [(336, 672), (672, 336), (672, 672)])
    (672, 672)
    """
    area = first * second
    best = canvases[0]
    most_kept, least_wasted = -1, 0
    for canvas in canvases:
        scale = min(canvas[0] / first, canvas[1] / second)
        kept = min(int(first * scale) * int(second * scale), area)
        wasted = canvas[0] * canvas[1] - kept
        if kept > most_kept or (kept == most_kept and wasted < least_wasted):
            best, most_kept, least_wasted = canvas, kept, wasted
    return best


def unpadded(width: int, height: int, columns: int, rows: int) -> tuple[int, int]:
    """``columns`` and ``rows`` of features that are left when both padded ends are cut off.

    ``columns x rows`` features cover the canvas, in which the ``width x height`` image is centred.

    >>> unpadded(1280, 720, 48, 48)
    (48, 28)
    """
    if width / height > columns / rows:
        filled = int(round(height * (columns / width), 7))
        return columns, rows - (rows - filled) // 2 * 2
    filled = int(round(width * (rows / height), 7))
    return columns - (columns - filled) // 2 * 2, rows
