"""Every row of the project's list of bug reports about retraining, and the tests that hold its right behaviour."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROWS = {
    1: ("data/test_scan.py::test_row_1_apple_double_files_are_hidden_files",),
    2: ("data/test_scan.py::test_rows_2_3_16_", "data/test_images.py::test_rows_1_2_14_"),
    3: ("data/test_scan.py::test_rows_2_3_16_", "data/test_picture_stream.py::test_rows_3_17_"),
    5: ("data/test_scan.py::test_rows_5_6_7_", "data/test_images.py::test_rows_5_and_6_"),
    6: ("data/test_scan.py::test_rows_5_6_7_", "data/test_images.py::test_rows_5_and_6_"),
    7: ("data/test_scan.py::test_rows_5_6_7_",),
    9: ("data/test_images.py::test_row_9_", "data/test_decode.py::test_cmyk_is_within_a_level"),
    11: ("data/test_images.py::test_row_11_", "data/test_decode.py::test_background_and_orientation"),
    13: ("data/test_images.py::test_row_13_", "data/test_scan.py::test_row_13_"),
    14: ("data/test_scan.py::test_row_14_", "transfer/test_odd_sets.py::test_rows_1_2_14_"),
    15: ("data/test_images.py::test_row_15_",),
    16: ("data/test_scan.py::test_rows_2_3_16_", "transfer/test_odd_sets.py::test_rows_1_2_14_"),
    17: ("data/test_picture_stream.py::test_rows_3_17_", "transfer/test_more_rows.py::test_row_17_"),
    18: ("data/test_scan.py::test_row_18_",),
    19: ("data/test_scan.py::test_row_19_",),
    20: ("data/test_scan.py::test_row_20_a_folder_too_high", "data/test_scan.py::test_row_20_nested_folders"),
    22: ("data/test_scan.py::test_row_22_",),
    23: ("data/test_scan.py::test_row_23_labels_are_kept", "data/test_scan.py::test_row_23_labels_that_are_one"),
    24: ("data/test_scan.py::test_row_24_", "transfer/test_odd_sets.py::test_row_24_"),
    25: ("data/test_scan.py::test_rows_25_26_", "transfer/test_odd_sets.py::test_names_that_break_shells"),
    26: ("data/test_scan.py::test_rows_25_26_", "transfer/test_more_rows.py::test_row_26_"),
    27: ("data/test_scan.py::test_row_27_", "transfer/test_odd_sets.py::test_row_27_"),
    29: ("data/test_scan.py::test_row_29_", "transfer/test_odd_sets.py::test_row_29_"),
    30: ("data/test_split.py::test_row_30_", "transfer/test_odd_sets.py::test_row_30_"),
    31: ("transfer/test_evaluation.py::test_row_31_", "data/tfrecord/test_pictures.py::test_row_31_"),
    32: ("weights/test_loading.py::test_the_background_of_imagenets_1001", "transfer/test_more_rows.py::test_row_32_"),
    34: ("data/test_split.py::test_rows_34_35_38_", "transfer/test_odd_sets.py::test_row_34_"),
    35: ("data/test_split.py::test_rows_34_35_38_",),
    37: ("data/test_split.py::test_row_37_",),
    38: ("data/test_split.py::test_rows_34_35_38_", "data/test_split.py::test_two_thousand_classes_of_five"),
    39: ("data/test_split.py::test_row_39_", "transfer/test_odd_sets.py::test_row_39_"),
    40: ("data/test_split.py::test_row_40_", "transfer/test_odd_sets.py::test_row_40_"),
    42: ("transfer/test_bottlenecks.py::test_row_42_a_flipped", "transfer/test_bottlenecks.py::test_row_42_a_shard"),
    44: ("weights/test_download.py::test_a_cut_download", "weights/test_download.py::test_a_stale_part"),
    45: ("transfer/test_extract.py::test_row_45_", "transfer/test_extract.py::test_views_are_the_mirror"),
    46: ("test_devices.py::test_row_46_", "test_start.py::test_start_without_tensorflow"),
    47: ("transfer/test_finetune.py::test_row_47_",),
    48: ("transfer/test_finetune.py::test_row_48_unfreezing", "transfer/test_finetune.py::test_row_48_two_trunks"),
    49: ("transfer/test_finetune.py::test_row_49_", "training/test_run.py::test_nan_stops_and_says_where"),
    51: ("transfer/test_finetune.py::test_row_51_",),
    52: ("transfer/test_demo.py::test_row_52_",),
    53: ("transfer/test_odd_sets.py::test_rows_53_55_57_",),
    55: ("transfer/test_odd_sets.py::test_rows_53_55_57_",),
    56: ("transfer/test_pipeline.py::test_row_56_",),
    57: ("transfer/test_odd_sets.py::test_rows_53_55_57_",),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_row_has_its_tests(row):
    for place in ROWS[row]:
        file, _, name = place.partition("::")
        assert re.search(rf"^def {re.escape(name)}\w*\(", (TESTS / file).read_text(), re.MULTILINE), place
