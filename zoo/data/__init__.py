"""Pictures and sequences as ``tf.data``: real data sets, image folders, TFRecord files, preprocessing."""
