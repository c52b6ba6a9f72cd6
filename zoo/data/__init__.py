"""Pictures and sequences as ``tf.data``: real data sets, image folders, TFRecord files, preprocessing."""


def pluralize(count: int, thing: str, things: str = "") -> str:
    """Returns "1 picture", "1200 pictures", "3 classes".

    Args:
        count: How many.
        thing: What one of them is called; what stands behind it, as in "picture in two classes", stays as it is.
        things: What several are called; by default the first word of ``thing`` with an s or es.
    """
    if not things:
        first, space, rest = thing.partition(" ")
        things = f"{first}{'es' if first.endswith('s') else 's'}{space}{rest}"
    return f"{count} {thing if count == 1 else things}"
