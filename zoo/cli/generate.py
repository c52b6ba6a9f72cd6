"""``zoo generate``: lets a trained word model write on."""

from pathlib import Path
from typing import Annotated

import typer

from zoo.cli._app import App
from zoo.cli._options import flags
from zoo.cli._quiet import import_tensorflow
from zoo.cli._records import given_options
from zoo.files import read_json, reading, validated

app = App()


@app.example(
    'zoo generate runs/word_lm --prompt "the company" --words 20',
)
def generate(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="Run folder of 'zoo train word_lm'.")],
    prompt: Annotated[str, typer.Option(help="Words to start from, with spaces between them.")] = "<eos>",
    words: Annotated[int, typer.Option(min=1, help="How many words to write.")] = 50,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Below 1 is safer, above 1 wilder; 0 takes the likeliest.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw among so many likeliest words only.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same text.")] = 0,
) -> None:
    """Write text with a trained word model."""
    drawn_by = sorted(given_options(context) & {"top_k", "seed"})
    if temperature == 0 and drawn_by:
        raise ValueError(f"--temperature 0 takes the likeliest word and draws nothing: leave out {flags(drawn_by)}")
    for name in ("model.keras", "vocabulary.json"):
        if not (run / name).is_file():
            raise FileNotFoundError(f"{run} has no {name}: it is not the folder of a finished 'zoo train word_lm'")
    import_tensorflow()
    from zoo.data import text
    from zoo.nets import word_lm
    from zoo.scoping import load_model

    path = run / "vocabulary.json"
    with reading(path, "a vocabulary"):
        vocabulary = text.Vocabulary(validated(list[str], read_json(path), path))
    start = vocabulary.encode(text.words(prompt), unknown="error")
    if not len(start):
        raise ValueError("--prompt has no words; give at least one, or leave it out to start a new line")
    model = load_model(run / "model.keras", compile=False)
    size = word_lm.vocabulary_size(model)
    if size != len(vocabulary):
        raise ValueError(f"{path} has {len(vocabulary)} words and the model {size}: they are not of one run")
    drawn = word_lm.generate(model, start, words, temperature=temperature, top_k=top_k, seed=seed)
    typer.echo(vocabulary.decode([*start, *drawn]))
