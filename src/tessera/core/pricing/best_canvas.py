"""Which canvas of tiles holds the image with the least scaling?

The rule that Llama 4, Llama 3.2 Vision, Command-A Vision and Molmo share: of the
canvases that need no shrinking the one that needs the least enlarging, else the
one that needs the least shrinking; of equals the one with the fewest tiles.
Source: transformers 5.18.0, Llama4ImageProcessor, MllamaImageProcessor and
Cohere2VisionImageProcessor; vLLM 0.32.0, molmo.py.
"""


def best_canvas(width: int, height: int, *, tile: int, most: int, largest: bool = False) -> tuple[int, int]:
    """Columns and rows of the canvas, at most ``most`` tiles together.

    With ``largest`` an image is enlarged as far as any canvas allows. Takes no
    more than ``most`` steps.

    >>> best_canvas(1280, 720, tile=336, most=16), best_canvas(3840, 2160, tile=336, most=16)
    ((4, 3), (5, 3))
    """
    columns, rows = -(-width // tile), -(-height // tile)
    if columns * rows <= most and not largest:
        return columns, rows
    best, best_scale = (1, 1), 0.0
    for rows in range(1, most + 1):
        # More columns than the height can make use of are only padding.
        useful = -(-rows * width // height)
        columns = min(useful, most // rows)
        scale = rows / height if columns == useful else columns / width
        if scale > best_scale or (scale == best_scale and columns * rows < best[0] * best[1]):
            best, best_scale = (columns, rows), scale
    return best
