"""The installed wheel on its own: it is not the checkout, its weights came along, and it predicts with them."""

from pathlib import Path

import zoo
from zoo.data import digits

HERE = Path(__file__).resolve().parents[1]
PLACE = Path(zoo.__file__).resolve()
if HERE / "zoo" in PLACE.parents:
    raise SystemExit(f"this is the checkout, not the wheel: {PLACE}")
test = digits.load().test
accuracy = float((zoo.lenet5(weights="digits").predict(test.images, verbose=0).argmax(-1) == test.labels).mean())
if accuracy < 0.99:
    raise SystemExit(f"the wheel's weights are right for {accuracy:.1%} of the digits only")
print(f"wheel: zoo {zoo.__version__} in {PLACE.parent} predicts {accuracy:.1%} of the test digits")
